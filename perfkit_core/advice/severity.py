"""How much does an advice matter? Only what it is predicted to save tells, never how much time its pattern takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from perfkit_core.advice.model import Prediction
from perfkit_core.advice.thresholds import Thresholds
from perfkit_core.language import mark

Severity = Literal["high", "medium", "low", "none", "note"]
"""``none``: it saves nothing, or costs time; ``note``: no number is known."""
WORDS: Final[Mapping[Severity, str]] = {
    "high": mark("high"),
    "medium": mark("medium"),
    "low": mark("low"),
    "none": mark("none"),
    "note": mark("note"),
}
"""What people read."""


def severity(prediction: Prediction, thresholds: Thresholds) -> Severity:
    """By the share of the step that is saved: none where nothing is, a note where no number is known."""
    if prediction.saving_ns is None:
        return "note"
    if prediction.saving_ns <= 0:
        return "none"
    share = prediction.saving_ns / max(prediction.base_ns, 1)
    if share >= thresholds.severity_high:
        return "high"
    return "medium" if share >= thresholds.severity_medium else "low"


def worth_saying(prediction: Prediction, thresholds: Thresholds) -> bool:
    """Whether it saves more than ``least_saving`` of a step. What has no number is said."""
    if prediction.saving_ns is None:
        return True
    return prediction.saving_ns > max(round(thresholds.least_saving * prediction.base_ns), 0)
