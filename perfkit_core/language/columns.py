"""Which columns have the tables that are no views: those of advice, comparisons, ledgers, architectures, timelines?"""

from __future__ import annotations

from typing import Final

COLUMNS: Final = (
    # of pages and of advice
    "row", "covered_ns", "other_ns", "rank_and_step", "cpu_bytes", "advice", "title", "severity", "saving_ns",
    "step_p10_ns", "step_p90_ns", "p10_ns", "p50_ns", "p90_ns", "floor_ns", "ceiling_ns", "method", "api", "first_step",
    "last_step", "rule", "reason", "to_record", "combined", "why", "afterwards_ns", "after", "value",
    # of ledgers and of replays of unchanged recordings
    "date", "outcome", "base", "change", "predicted_saving_ratio", "predicted_low_ratio", "predicted_high_ratio",
    "saving_low_ratio", "saving_high_ratio", "noise_ratio", "saving_error_ratio", "step_error_ratio", "records",
    "framework", "verified", "refuted", "abstained", "predicted", "sign_right", "covered_ratio", "source",
    "error_ratio", "worst_error_ratio", "unexplained_ratio",
    # of comparisons
    "run", "other", "difference_ns", "base_ns", "base_step_ns", "other_step_ns", "base_cpu_ns", "other_cpu_ns",
    "difference_cpu_ns", "base_device_ns", "other_device_ns", "difference_device_ns", "base_calls", "other_calls",
    "base_steps", "other_steps", "base_captures", "other_captures", "captures", "layer", "level", "family", "operator",
    "count_effect_ns", "per_call_effect_ns", "explained_ratio", "reached_ns", "statistic", "verdict", "cliffs_delta",
    "probability_slower", "low_ns", "high_ns", "outlying", "found", "condition", "limit", "result", "change_ratio",
    "shape", "matrix16_flops", "work", "unit",
    # of architectures
    "trainable_parameters", "backward_flops", "inputs", "outputs", "shapes", "dtype", "tied", "setting",
)  # fmt: skip
"""Their headings are translated, too; what a table has besides is shown in English."""
