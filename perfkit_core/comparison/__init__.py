"""Two runs side by side, whatever their frameworks."""

from perfkit_core.comparison.report import comparison_report
from perfkit_core.comparison.sides import Comparison, compare

__all__ = ["Comparison", "compare", "comparison_report"]
