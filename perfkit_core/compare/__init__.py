"""Comparison of runs, of the same or of different frameworks."""

from __future__ import annotations

from perfkit_core.compare.comparison import Comparison, compare
from perfkit_core.compare.pair import CompareOptions, Pair, pair
from perfkit_core.compare.report import comparison_report
from perfkit_core.compare.statistics import SampleStatistics, step_statistics

__all__ = ["CompareOptions", "Comparison", "Pair", "SampleStatistics", "compare", "comparison_report", "pair",
           "step_statistics"]  # fmt: skip
