"""The saving of an advice after other advice has been applied. The times in the traces can be added by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from perfkit_core.advice import engine, reports
from perfkit_core.advice.advice import Advices, After
from perfkit_core.advice.engine import advise
from perfkit_core.advice.explain import document
from perfkit_core.advice.predict import step_ns
from perfkit_core.advice.rule_input import Candidate, RuleInput
from perfkit_core.plugins.contracts import Rule
from perfkit_core.plugins.frameworks import Framework
from perfkit_core.readers.load import load
from perfkit_core.replay.graph import play
from perfkit_core.replay.transforms import Remove, transformed
from perfkit_core.trace.model.trace import Trace
from tests.support.events import device, host, trace
from tests.support.rendered import rendered

US = 1_000


def removing(name: str, number: int) -> Rule:
    def find(facts: RuleInput) -> Sequence[Candidate]:
        at = np.flatnonzero(facts.trace.rows("name", name)).astype(np.int64)
        return [Candidate(f"remove {name}", {}, at, transforms=(Remove(at),))]

    return Rule(name, number, 1, f"Without {name}", find)


def found(recording: Trace, *names: str) -> Advices:
    rules = {name: removing(name, number) for number, name in enumerate(names)}
    return advise(recording, plugins=SimpleNamespace(rules=lambda: rules, framework=lambda name: Framework("")))


def waiting() -> Trace:
    """Return a step of 105 µs. The host launches work of 70 µs at 20 and prepares the next batch for 50 µs. It then
    waits until 5 µs after the end of the work. Other host work of 10 µs follows."""
    return trace(
        [
            host("step", "step", 0, 105 * US, step=0),
            host("launch", "runtime", 10 * US, 10 * US, correlation=1),
            device("kernel", "kernel", 20 * US, 70 * US, 1),
            host("prepare", "operator", 20 * US, 50 * US),
            host("cudaDeviceSynchronize", "sync", 70 * US, 25 * US),
        ]
    )


def ids(advices: Advices) -> dict[str, str]:
    return {one.rule: one.id for one in (*advices.advice, *advices.without_saving)}


def test_a_saving_that_another_one_hides() -> None:
    """Without preparing, the host waits longer, so nothing is saved. Removing the kernel saves 23 µs, and removing both
    saves 73 µs. So preparing saves 50 µs after the kernel has been removed."""
    advices = found(waiting(), "prepare", "kernel")
    prepare, kernel = ids(advices)["prepare"], ids(advices)["kernel"]
    own = {one.id: one.prediction.saving_ns for one in (*advices.advice, *advices.without_saving)}
    assert own == {prepare: 0, kernel: 23 * US}
    assert advices.after == {prepare: After((kernel,), 50 * US)}
    told = rendered(reports.report(advices, waiting()).sections[-1].lines)
    said = f"(Without prepare) saves nothing by itself, 50.0 µs once {kernel} is applied."
    assert f"Useful after other changes: {prepare} {said}" in told
    assert not [line for line in told if line.startswith("Evaluated")]


def twice_hidden() -> Trace:
    """Return kernels a and b of 45 and 35 µs that run at the same time on two streams. The host waits until 5 µs after
    the end of a."""
    return trace(
        [
            host("step", "step", 0, 100 * US, step=0),
            host("launch", "runtime", 0, 10 * US, correlation=1),
            host("launch", "runtime", 10 * US, 10 * US, correlation=2),
            device("a", "kernel", 20 * US, 45 * US, 1),
            device("b", "kernel", 20 * US, 35 * US, 2) | {"stream": 9},
            host("cudaDeviceSynchronize", "sync", 20 * US, 50 * US),
        ]
    )


def test_two_streams() -> None:
    """Removing a saves 10 µs, and removing b saves nothing. Removing both saves 48 µs. So b saves 38 µs after a has
    been removed."""
    advices = found(twice_hidden(), "a", "b")
    assert [one.prediction.saving_ns for one in advices.advice] == [10 * US]
    assert advices.after == {ids(advices)["b"]: After((ids(advices)["a"],), 38 * US)}


def test_a_saving_that_another_change_includes() -> None:
    """An operator of 60 µs contains an operator of 50 µs. If the outer operator is removed, the inner operator is gone,
    too."""
    recording = trace(
        [
            host("step", "step", 0, 100 * US, step=0),
            host("outer", "operator", 0, 60 * US),
            host("inner", "operator", 5 * US, 50 * US),
        ]
    )
    advices = found(recording, "outer", "inner")
    outer, inner = ids(advices)["outer"], ids(advices)["inner"]
    assert {one.rule: one.prediction.saving_ns for one in advices.advice} == {"outer": 60 * US, "inner": 50 * US}
    assert advices.combined.saving_ns == 60 * US
    assert advices.after == {outer: After((inner,), 10 * US), inner: After((outer,), 0)}
    assert f"With other changes: saves nothing once {outer} is applied" in rendered(
        reports.report(advices, recording).sections[1].lines
    )
    told = {one["id"]: one["after"] for one in document(advices, recording)["advice"]}
    assert told == {outer: {"once": [inner], "saving_ns": 10 * US}, inner: {"once": [outer], "saving_ns": 0}}


def test_independent_savings_have_no_note() -> None:
    parts = [host(f"op{n}", "operator", n * 10 * US, 10 * US) for n in range(5)]
    advices = found(trace([host("step", "step", 0, 100 * US, step=0), *parts]), *(f"op{n}" for n in range(5)))
    assert len(advices.together) == 5
    assert not advices.after


def test_the_number_of_replays_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [host(f"op{n}", "operator", n * US, US) for n in range(40)]
    recording = trace([host("step", "step", 0, 100 * US, step=0), *parts])
    played = counted(monkeypatch)
    found(recording, *(f"op{n}" for n in range(40)))
    # one per combined advice; at most REPLAYS for savings after other advice
    assert 40 < len(played) <= 40 + engine.REPLAYS


def counted(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    played: list[object] = []
    real: Callable[..., float] = step_ns
    monkeypatch.setattr(engine, "step_ns", lambda facts, *how: (played.append(how), real(facts, *how))[1])
    return played


def test_notes_on_a_real_recording_equal_a_replay(traces: Path) -> None:
    """The test replays the other advice, with and without the transforms of the advice."""
    recording = load(traces / "torch" / "pairs" / "resnet50-workers0.json.gz")
    facts, advices = RuleInput(recording), advise(recording)
    known = {one.id: one for one in (*advices.advice, *advices.without_saving)}
    assert advices.after

    def step_ns(names: Sequence[str]) -> float:
        graph = transformed(
            facts.training.replay, [transform for name in names for transform in known[name].candidate.transforms]
        )
        return float(np.median(facts.steps.lasting_ns(facts.replay, graph, play(graph))))

    for name, then in advices.after.items():
        assert name not in then.once
        assert set(then.once) <= set(advices.together)
        saved = step_ns(then.once) - step_ns([*then.once, name])
        assert then.saving_ns == pytest.approx(max(saved, 0), abs=1)
