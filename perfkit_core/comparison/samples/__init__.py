"""Steps as samples: captures, the noise between equal runs, intervals, verdicts, outliers."""
