"""Two runs side by side, whatever their frameworks."""

from perfkit_core.comparison.pair import Asked, Pair, pair
from perfkit_core.comparison.report import comparison_report
from perfkit_core.comparison.samples.statistics import SampleStatistics, step_statistics
from perfkit_core.comparison.sides import Comparison, compare

__all__ = ["Asked", "Comparison", "Pair", "SampleStatistics", "compare", "comparison_report", "pair", "step_statistics"]
