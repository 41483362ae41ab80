"""Two runs side by side, whatever their frameworks."""

from perfkit_core.compare.comparison import Comparison, compare
from perfkit_core.compare.report import comparison_report

__all__ = ["Comparison", "compare", "comparison_report"]
