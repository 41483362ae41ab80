"""The scanner: compiled code that reads the usual events of Chrome traces."""
