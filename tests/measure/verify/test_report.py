"""Tests of the sentences that a verification adds to its verdict."""

from __future__ import annotations

from perfkit_core.measure.verify.outcome import judged, report
from perfkit_core.measure.verify.prediction import Predicted
from perfkit_core.measure.verify.runs import Metric, Plan, Run, Side


def said(base: str, change: str, advice: str | None) -> str:
    """Return the headline for steps of 10 and 8 ns, timed in the given frameworks."""
    sides: dict[Side, tuple[float, str]] = {"base": (10.0, base), "change": (8.0, change)}
    runs = [Run(1, side, value, (name,)) for _ in range(6) for side, (value, name) in sides.items()]
    predicted = Predicted(10, 7, 8, 9, "a:1", "a", advice)
    return "\n".join(report(judged(Plan("a", "b", Metric()), "", runs, predicted)).headline)


def test_different_frameworks_are_mentioned() -> None:
    across = said("torch", "paddle", "paddle")
    assert "The frameworks differ (base in torch, change in paddle), which contributes to the difference." in across
    assert "The advice is for paddle, but torch was measured" in across
    assert "The advice is for paddle, but torch was measured" in said("torch", "torch", "paddle")


def test_equal_frameworks_are_not_mentioned() -> None:
    for told in (said("torch", "torch", "torch"), said("torch", "torch", None)):
        assert "frameworks differ" not in told
        assert "advice is for" not in told
