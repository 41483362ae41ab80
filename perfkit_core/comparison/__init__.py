"""Two runs side by side, whatever their frameworks."""

from perfkit_core.comparison.sides import Comparison, compare
from perfkit_core.comparison.report import comparison_report

__all__ = ["Comparison", "compare", "comparison_report"]
