"""The words that some columns are made of."""

from __future__ import annotations

from typing import Final

from perfkit_core.language.messages import Sentence, render, say
from perfkit_core.model.columns import Column

SIDES: Final = ("base", "other")
WORDS: Final = (
    *SIDES,
    # kinds and phases of events, see the schema, and what is in no phase
    "unlaunched", "host", "device",
    # parts of a step
    "device_compute", "compute", "exposed_communication", "exposed_copy", "input_wait", "launch_and_host", "framework",
    "idle", "interval", "forward_backward", "tail", "overlap",
    "total time", "computation", "framework overhead", "calls into the device's runtime",
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


def worded(value: str, column: Column | None = None) -> str:
    """A cell in the language of the moment where it is a word of ours, or stands in brackets for what has no name;
    names stay as they are."""
    if isinstance(value, Sentence):
        return render(value.message)
    words = column.words if column else False
    ours = value in words if isinstance(words, tuple) else words is True
    return say(value) if ours or (value.startswith("(") and value.endswith(")")) else value
