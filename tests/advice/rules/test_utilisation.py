"""Rule 30: a device that is idle for more than half of the step, unless the training waits for data."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit_core.advice.predict import predict
from perfkit_core.advice.rule_input import NotEvaluableError, RuleInput
from perfkit_core.advice.rules.low_device_utilisation import find
from perfkit_core.readers.load import load
from tests.support.events import device, host, trace


def working(busy_ns: int, loading_ns: int = 0) -> RuleInput:
    """Return two steps of 1 ms with data loading and device work: two kernels on two streams that overlap
    completely."""
    rows = []
    for step in range(2):
        begin = step * 1_000_000
        rows += [
            host(f"step {step}", "step", begin, 1_000_000, step=step),
            *([host("next", "dataloader", begin, loading_ns)] if loading_ns else []),
            host("launch", "runtime", begin + 100_000, 1000, correlation=2 * step + 1),
            device("a", "kernel", begin + 200_000, busy_ns, 2 * step + 1),
            {**device("b", "kernel", begin + 200_000, busy_ns, 2 * step + 1), "stream": 8},
        ]
    return RuleInput(trace(rows))


def test_less_than_half_of_the_step() -> None:
    facts = working(499_000)
    (found,) = find(facts)
    assert found.evidence["busy_ns"] == 499_000
    assert found.evidence["busy_ratio"] == 0.499
    assert predict(facts, found).saving_ns is None


def test_half_of_the_step() -> None:
    assert find(working(500_000)) == []


def test_training_that_waits_for_data_does_not_count() -> None:
    assert find(working(100_000, loading_ns=60_000)) == []
    assert len(find(working(100_000, loading_ns=50_000))) == 1


def test_without_steps_or_device() -> None:
    with pytest.raises(NotEvaluableError, match="steps"):
        find(RuleInput(trace([host("a", "operator", 0, 10), device("k", "kernel", 0, 5)])))
    with pytest.raises(NotEvaluableError, match="device"):
        find(RuleInput(trace([host("step", "step", 0, 10, step=0), host("a", "operator", 0, 5)])))


def test_a_real_recording(traces: Path) -> None:
    """The busy time equals an independent computation: every nanosecond of the step in which a kernel, memcpy or memset
    runs."""
    loaded = load(traces / "torch" / "h100-bert-small.json.gz")
    events = loaded.to_pandas()
    (step,) = events[events["kind"] == "step"].itertuples()
    work = events[events["kind"].isin(["kernel", "memcpy", "memset"])]
    edges = sorted(
        (max(start, step.start_ns), min(start + dur, step.start_ns + step.dur_ns))
        for start, dur in zip(work["start_ns"], work["dur_ns"], strict=True)
    )
    busy, until = 0, 0
    for start, end in edges:
        busy += max(end - max(start, until), 0)
        until = max(until, end)
    (found,) = find(RuleInput(loaded))
    assert found.evidence["busy_ns"] == busy
