"""What do tables say? Columns of those that are no views, and the words that some columns are made of."""

from __future__ import annotations

from typing import Final

from perfkit_core.language.messages import Sentence, render, say

COLUMNS: Final = (
    # of pages and of advice
    "row", "covered_ns", "other_ns", "rank_and_step", "cpu_bytes", "advice", "title", "severity", "saving_ns",
    "step_p10_ns", "step_p90_ns", "p10_ns", "p50_ns", "p90_ns", "floor_ns", "ceiling_ns", "method", "api", "first_step",
    "last_step", "rule", "reason", "to_record", "combined", "why", "afterwards_ns", "after", "value",
    # of views that are split by something
    "after_name", "before", "before_name", "block", "device_compute_ns", "edge", "exposed_copy_ns",
    "forward_backward_ns", "grid", "interval_ns", "label", "last_rank", "launch_and_host_ns", "max_step_ns",
    "median_step_ns", "min_step_ns", "missing", "occupancy_ratio", "overload", "registers", "scope", "shared_bytes",
    "skew_max_ns", "skew_p50_ns", "stack", "stream", "tail_ns",
    # of ledgers and of replays of unchanged recordings
    "date", "outcome", "base", "change", "predicted_saving_ratio", "predicted_low_ratio", "predicted_high_ratio",
    "saving_low_ratio", "saving_high_ratio", "noise_ratio", "saving_error_ratio", "step_error_ratio", "records",
    "framework", "verified", "refuted", "abstained", "predicted", "sign_right", "covered_ratio", "source",
    "error_ratio", "worst_error_ratio", "unexplained_ratio",
    # of comparisons
    "run", "other", "difference_ns", "base_ns", "base_step_ns", "other_step_ns", "base_cpu_ns", "other_cpu_ns",
    "difference_cpu_ns", "base_device_ns", "other_device_ns", "difference_device_ns", "base_calls", "other_calls",
    "base_steps", "other_steps", "base_captures", "other_captures", "captures", "layer", "level", "family", "operator",
    "count_effect_ns", "per_call_effect_ns", "explained_ratio", "reached_ns", "time_so_far_ns", "statistic", "verdict",
    "cliffs_delta",
    "probability_slower", "low_ns", "high_ns", "outlying", "found", "condition", "limit", "result", "change_ratio",
    "shape", "side", "capture", "kernel", "matrix16_tflop_per_s", "float32_tflop_per_s", "memory_gb_per_s",
    "device_memory_bytes",
    # of lists of runs
    "path", "format", "devices", "ranks", "cycles", "steps", "events", "file_bytes", "findings", "why_not_read",
    "recorded_utc", "written_utc", "recorded_or_written_utc",
    # of architectures
    "trainable_parameters", "backward_flops", "inputs", "outputs", "shapes", "dtype", "tied", "setting",
)  # fmt: skip
"""Their headings are translated, too; what a table has besides is shown in English."""

OF_WORDS: Final = frozenset(
    ("category", "part", "kind", "phase", "place", "severity", "method", "statistic", "verdict", "level", "found",
     "outcome", "result", "setting")
)  # fmt: skip
"""Columns whose values are words of ours, and no names."""
SIDES: Final = ("base", "other")
_OF_SIDES: Final = frozenset(("name", "run", "side"))
OVERHEAD: Final = ("total time", "computation", "framework overhead", "calls into the device's runtime")
"""Names of the rows of the view fluid_overhead."""
WORDS: Final = (
    *SIDES,
    # kinds and phases of events, see the schema, and what is in no phase
    "unlaunched", "host", "device",
    # parts of a step
    "device_compute", "compute", "exposed_communication", "exposed_copy", "input_wait", "launch_and_host", "framework",
    "idle", "interval", "forward_backward", "tail", "overlap", *OVERHEAD,
    # of advice and comparisons
    "high", "medium", "low", "none", "replay", "prior", "microbenchmark", "predicted", "verified", "refuted",
    "abstained", "median", "mean", "minimum", "maximum", "slower", "faster", "slower, perhaps noise",
    "faster, perhaps noise", "no difference beyond noise", "too few steps to tell", "base only", "other only", "both",
    "passed", "failed", "within noise", "cannot tell",
    "category", "event", "family", "family_phase", "layer", "operator_shape", "unmatched",
    # rows that stand for what has no name
    "(median less mean of the middle steps)", "(nothing recorded)", "(no phase)", "(no layer)", "(no family)",
    "(no launch recorded)", "(launched outside operators)", "(no operator)", "(no module)",
    "(allocated before the recording)", "(not explained by the events)", "(in a step, outside operators)",
    "(outside host events)",
)  # fmt: skip
"""Their values, as tables have them, besides those of the schema."""


def worded(value: str, column: str = "") -> str:
    """A cell in the language of the moment where it is a word of ours, or stands in brackets for what has no name;
    names stay as they are."""
    if isinstance(value, Sentence):
        return render(value.message)
    ours = column in OF_WORDS or (value.startswith("(") and value.endswith(")"))
    in_names = (value in SIDES and column in _OF_SIDES) or (value in OVERHEAD and column == "name")
    return say(value) if ours or in_names else value
