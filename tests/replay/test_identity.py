"""The replay error of the unchanged graph, and the share of device work that is unexplained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perfkit_core.advice.identity import identities
from perfkit_core.advice.predict import identity
from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.advice.text import replayed
from perfkit_core.replay.build import build
from perfkit_core.replay.played_steps import unexplained_ratio
from perfkit_core.trace.model.trace import Trace
from tests.support.events import device, host, trace


def kernels(late_ns: int) -> Trace:
    """Return three kernels of 50 µs. The first begins after its launch, and the second after the first. The third
    begins ``late_ns`` after the second, although it was launched long before."""
    return trace(
        [
            host("step", "step", 0, 900_000, step=0),
            *(host(f"launch {n}", "runtime", n * 1_000, 1_000, correlation=n + 1) for n in range(3)),
            device("a", "kernel", 5_000, 50_000, 1),
            device("b", "kernel", 56_000, 50_000, 2),
            device("c", "kernel", 106_000 + late_ns, 50_000, 3),
        ]
    )


def test_work_that_starts_right_after_its_cause_is_explained() -> None:
    assert unexplained_ratio(build(kernels(1_000))) == 0.0
    assert unexplained_ratio(build(kernels(20_000))) == 0.0  # the longest delay that needs no other cause


def test_work_that_starts_late_without_a_reason_is_unexplained() -> None:
    assert unexplained_ratio(build(kernels(100_000))) == pytest.approx(1 / 3)


@pytest.mark.parametrize(("late_ns", "unexplained"), [(209_000, 0.0), (250_000, 50 / 280)])
def test_work_of_another_stream_explains_a_late_start(late_ns: int, unexplained: float) -> None:
    found = trace(
        [
            host("step", "step", 0, 900_000, step=0),
            *(host(f"launch {n}", "runtime", n * 1_000, 1_000, correlation=n + 1) for n in range(5)),
            *(device("a", "kernel", 5_000 + n * 11_000, 10_000, n + 1) for n in range(3)),
            device("other", "kernel", 8_000, 200_000, 4) | {"stream": 9},
            device("c", "kernel", late_ns, 50_000, 5),  # starts after "other", not after a
        ]
    )
    assert unexplained_ratio(build(found)) == pytest.approx(unexplained)


def test_without_device_work_there_is_nothing_to_explain() -> None:
    found = identity(RuleInput(trace([host("step", "step", 0, 10, step=0), host("op", "operator", 1, 5)])))
    assert (found.error, found.worst, found.steps, found.unexplained) == (0.0, 0.0, 1, None)


@pytest.mark.parametrize(("stream", "recorded", "count"), [(9, False, 2), (9, True, 0), (7, False, 0)])
def test_streams_that_wait_for_nothing_recorded(stream: int, recorded: bool, count: int) -> None:
    """Two calls let a stream wait. Cases: two streams without a device record, two streams with a record, and one
    stream."""
    rows = [
        host("step", "step", 0, 900_000, step=0),
        *(host(f"launch {n}", "runtime", n * 1_000, 1_000, correlation=n) for n in (1, 2)),
        *(host("cudaStreamWaitEvent", "runtime", n * 1_000, 500, correlation=n) for n in (3, 4)),
        device("a", "kernel", 5_000, 10_000, 1),
        device("b", "kernel", 20_000, 10_000, 2) | {"stream": stream},
        *([device("Stream Wait Event", "sync", 3_500, 0, 3) | {"stream": stream}] if recorded else []),
    ]
    found = identity(RuleInput(trace(rows)))
    assert found.unrecorded_events == count
    assert ("wait for unknown work" in str(replayed(found, "step"))) == bool(count)


def test_an_error_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replay is 1 % too long in one of three steps."""
    steps = [host(f"step {n}", "step", n * 100_000, 100_000, step=n) for n in range(3)]
    found = trace([*steps, *(host("op", "operator", n * 100_000, 50_000) for n in range(3))])
    facts = RuleInput(found)

    def play(graph: object) -> np.ndarray:
        starts = facts.replay.graph.start_ns.copy()
        starts[facts.steps.after[-1]] += 1_000
        return starts

    monkeypatch.setattr("perfkit_core.advice.predict.play", play)
    told = identity(facts)
    assert (told.error, told.worst) == (0.0, 0.01)


def test_every_recording_with_steps_is_repeated(traces: Path) -> None:
    """The median error is at most 1 %, the largest error at most 3.3 % (Lumos, MLSys 2025). ``pytest -s`` shows the
    table."""
    found = identities(sorted((traces / "torch").rglob("*.json*")))
    with_steps = found[found["steps"].notna()]
    print(with_steps.assign(source=[Path(name).name for name in with_steps["source"]]).to_string())
    assert len(with_steps) >= 20
    assert with_steps["error_ratio"].median() <= 0.01
    assert with_steps["worst_error_ratio"].max() <= 0.033
    assert (with_steps["unexplained_ratio"].dropna() <= 1).all()
