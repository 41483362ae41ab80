"""The saving of an advice after other advice has been applied. The times in the traces can be added by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from perfkit_core.advice import reports
from perfkit_core.advice.advice import Advices, After
from perfkit_core.advice.engine import advise
from perfkit_core.advice.explain import document
from perfkit_core.advice.rule_input import Candidate, RuleInput
from perfkit_core.plugins.contracts import Rule
from perfkit_core.plugins.frameworks import Framework
from perfkit_core.readers.load import load
from perfkit_core.replay.graph import play
from perfkit_core.replay.transforms import Remove, transformed
from perfkit_core.trace.model.trace import Trace
from tests.support.events import host, trace
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


def ids(advices: Advices) -> dict[str, str]:
    return {one.rule: one.id for one in (*advices.advice, *advices.without_saving)}


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
    assert advices.after == {inner: After((outer,), 0)}
    assert f"With other changes: saves nothing once {outer} is applied" in rendered(
        reports.report(advices, recording).sections[1].lines
    )
    told = {one["id"]: one["after"] for one in document(advices, recording)["advice"]}
    assert told == {outer: None, inner: {"once": [outer], "saving_ns": 0}}


def test_independent_savings_have_no_note() -> None:
    parts = [host(f"op{n}", "operator", n * 10 * US, 10 * US) for n in range(5)]
    advices = found(trace([host("step", "step", 0, 100 * US, step=0), *parts]), *(f"op{n}" for n in range(5)))
    assert len(advices.together) == 5
    assert not advices.after


def test_changes_that_share_no_event_keep_their_savings() -> None:
    """Three steps of 100 µs. The first operator takes 0, 20 and 30 µs, the second one 30, 20 and 0 µs. The median step
    is shorter by 20 µs without either of them, and by 30 µs without both."""
    rows = []
    for number, (first, second) in enumerate([(0, 30), (20, 20), (30, 0)]):
        begin = number * 100 * US
        rows.append(host("step", "step", begin, 100 * US, step=number))
        times = (("first", 0, first), ("second", 40, second))
        rows += [host(name, "operator", begin + at * US, dur * US) for name, at, dur in times if dur]
    advices = found(trace(rows), "first", "second")
    assert {item.prediction.saving_ns for item in advices.advice} == {20 * US}
    assert (advices.after, advices.combined.saving_ns) == ({}, 40 * US)


def test_notes_on_a_real_recording_equal_a_replay(traces: Path) -> None:
    """The test replays the other advice, with and without the transforms of the advice."""
    recording = load(traces / "torch" / "pairs" / "resnet50-workers0.json.gz")
    facts, advices = RuleInput(recording), advise(recording)
    known = {one.id: one for one in (*advices.advice, *advices.without_saving)}
    assert advices.after

    def total_ns(names: Sequence[str]) -> int:
        graph = transformed(
            facts.training.replay, [transform for name in names for transform in known[name].candidate.transforms]
        )
        return int(facts.steps.lasting_ns(facts.replay, graph, play(graph)).sum())

    for name, then in advices.after.items():
        assert name not in then.once
        assert set(then.once) <= set(advices.together)
        left = (total_ns(then.once) - total_ns([*then.once, name])) / (total_ns([]) - total_ns([name]))
        assert then.saving_ns == pytest.approx(left * known[name].prediction.saving_ns, abs=1)
