"""Predictions compared with measurements: a training that was recorded before and after a change."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfkit_core.advice.engine import advise, what_ifs
from perfkit_core.readers.load import load


def test_workers_for_a_loader_without_workers(traces: Path) -> None:
    """In ResNet-50 on a V100 with num_workers 0 → 4, subtracting the share of the loader is 16 % off."""
    pairs = traces / "torch" / "pairs"
    after = load(pairs / "resnet50-workers4.json.gz")
    measured = float(np.median(after.ints("dur_ns")[after.rows("kind", "step")]))
    found = advise(load(pairs / "resnet50-workers0.json.gz"))
    (one,) = (one for one in found.advice if one.rule == "loader-workers")
    p = one.prediction
    measured *= p.base_ns / found.base.recorded_ns  # both were recorded, and the prediction is for a step that is not
    print(f"measured {measured:.0f} ns; predicted {p.p10_ns} {p.p50_ns} {p.p90_ns}; naive {p.naive_ns}")
    assert p.p10_ns <= measured <= p.p90_ns
    assert abs(p.p50_ns - measured) <= 0.1 * measured
    assert abs(p.naive_ns - measured) > 0.1 * measured
    assert abs(p.p50_ns - measured) < abs(p.naive_ns - measured)


def test_the_what_if_question_for_four_workers(traces: Path) -> None:
    before = load(traces / "torch" / "pairs" / "resnet50-workers0.json.gz")
    (fired,) = (one for one in advise(before, rules=["loader-workers"]).advice)
    (asked,) = what_ifs(before, [("loader-workers", 4)]).advice
    assert asked.prediction == fired.prediction
    (one_worker,) = what_ifs(before, [("loader-workers", 1)]).advice
    assert one_worker.prediction.p50_ns >= asked.prediction.p50_ns
