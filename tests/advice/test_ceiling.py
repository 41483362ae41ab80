"""The ceiling of a saving: computed by hand, and compared with transforms of all sizes on recordings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfkit_core.advice.engine import advise
from perfkit_core.advice.predict import limit, most_ns, predict
from perfkit_core.advice.rule_input import Candidate, RuleInput
from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.readers.load import load
from perfkit_core.replay.graph import play
from perfkit_core.replay.transforms import (
    Batch,
    Case,
    InCases,
    Insert,
    Load,
    Move,
    Overlap,
    Quantity,
    Remove,
    Scale,
    Transform,
    Unblock,
    transformed,
)
from perfkit_core.trace.model.trace import Trace
from tests.support.events import device, host, trace

US = 1_000


def recording() -> Trace:
    """Return a recording of 150 µs: host work of 30 µs, a launch, a wait until 145 for its kernel of 100 µs, and 5 µs
    of host work."""
    return trace(
        [
            host("step", "step", 0, 150 * US, step=0),
            host("work", "operator", 0, 30 * US),
            host("launch", "runtime", 30 * US, 10 * US, correlation=1),
            device("kernel", "kernel", 45 * US, 100 * US, 1),
            host("cudaDeviceSynchronize", "sync", 40 * US, 105 * US),
        ]
    )


def rows(*names: str) -> IntArray:
    return np.flatnonzero(recording().rows("name", *names)).astype(np.int64)


def test_a_saving_is_no_larger_share_of_all_steps_than_the_work() -> None:
    """An operator takes 40 of 100 µs in nine steps, and 40 of 900 µs in one step: 400 of 1800 µs."""
    events, begin = [], 0
    for number in range(10):
        dur = 900 if number == 5 else 100
        events += [host("step", "step", begin * US, dur * US, step=number), host("op", "operator", begin * US, 40 * US)]
        begin += dur
    steps = trace(events)
    at = np.flatnonzero(steps.rows("name", "op")).astype(np.int64)
    prediction = predict(RuleInput(steps), Candidate("", {}, at, transforms=(Remove(at),)))
    assert prediction.saving_ratio == pytest.approx(400 / 1800, abs=1e-4)


def two_streams(number: int, kind: str = "kernel") -> list[dict[str, Any]]:
    """Return the events of a step of 100 µs: a kernel of 40 µs on one stream, then one of 40 µs on another stream,
    which waits for the first, and 35 µs of host work."""
    begin = number * 100 * US
    return [
        host("step", "step", begin, 100 * US, step=number),
        host("launch", "runtime", begin + 5 * US, 5 * US, correlation=2 * number),
        host("launch", "runtime", begin + 10 * US, 5 * US, correlation=2 * number + 1),
        device("first", "kernel", begin + 10 * US, 40 * US, 2 * number),
        device("second", kind, begin + 50 * US, 40 * US, 2 * number + 1) | {"stream": 8},
        host("work", "operator", begin + 60 * US, 35 * US),
    ]


@pytest.mark.parametrize("kind", ["kernel", "memcpy"])
def test_no_step_is_shorter_than_the_work_of_its_device(kind: str) -> None:
    """Without its work, the host needs 65 µs for a step. The device works for 80 µs, and each stream for 40 µs."""
    recording = trace([event for number in range(4) for event in two_streams(number, kind)])
    facts, at = RuleInput(recording), np.flatnonzero(recording.rows("name", "work")).astype(np.int64)
    found = predict(facts, Candidate("c", {}, at, transforms=(Remove(at),), base_ns=100 * US))
    assert (found.p10_ns, found.p50_ns, found.saving_p90_ns) == (80 * US, 80 * US, 20 * US)
    found = predict(facts, Candidate("c", {}, at, transforms=(Remove(at),)))
    assert (found.p10_ns, found.p50_ns, found.saving_p90_ns) == (80 * US, 80 * US, 20 * US)


def test_a_step_takes_at_least_the_work_of_all_streams() -> None:
    """The host is ahead: it needs 60 µs for a step, in which the device works for 80 µs, and each stream for 40 µs."""
    events = [event for number in range(4) for event in two_streams(number) if event["name"] != "work"]
    for event in events:
        number = event["start_ns"] // (100 * US)
        if event["name"] in ("step", "launch"):
            event["start_ns"] -= number * 40 * US
        else:
            event["start_ns"] -= number * 20 * US
        if event["name"] == "step":
            event["dur_ns"] = 60 * US
    facts = RuleInput(trace(sorted(events, key=lambda event: event["start_ns"])))
    assert (facts.ahead, facts.step_ns, facts.training.step_ns) == (True, 80 * US, 80 * US)


def test_work_that_two_steps_share_counts_once() -> None:
    """The second kernel of a step still runs for 10 µs beside the first kernel of the next step."""
    events = [event for number in range(4) for event in two_streams(number)]
    for event in events:
        if event["name"] == "second":
            event["start_ns"] += 30 * US
    facts = RuleInput(trace(events))
    device_ns = facts.steps.device_ns(facts.replay, facts.replay.graph, facts.replay.graph.start_ns)
    assert device_ns.tolist() == [80 * US, 70 * US, 70 * US, 70 * US]


@pytest.mark.parametrize(
    ("changes", "most"),
    [
        ((Scale(rows("work"), 0.5),), 30),  # all of the host work
        ((Scale(rows("work"), Quantity(0.2, 0.5, 3.0, "")),), 30),
        ((Scale(rows("kernel"), 0.9),), 103),  # the wait, except for the 2 µs of its call
        ((Scale(rows("work", "kernel"), 0.5, device=False),), 30),
        ((Scale(rows("work", "kernel"), 0.5, host=False),), 100),  # the launch still takes its recorded time
        ((Remove(rows("work")), Insert(rows("launch"), 5 * US)), 30),
        ((InCases(Remove(rows("work")), (Case.SHORT,)),), 30),
        ((Unblock(rows("cudaDeviceSynchronize"), 3 * US),), 50),  # the device works for 100 of 150 µs
        ((Overlap(rows("work"), np.array([-1]), 2.0),), 30),
    ],
)  # fmt: skip
def test_the_limit_by_hand(changes: Sequence[Transform], most: int) -> None:
    assert most_ns(RuleInput(recording()), changes) == most * US


def test_changes_without_a_limit_keep_the_rules_ceiling() -> None:
    facts, at = RuleInput(recording()), rows("work")
    for transform in (Load(at, 4), Batch(rows("launch"), 1 * US)):
        assert limit(transform) is None
        assert most_ns(facts, (Remove(at), transform)) is None
        candidate = Candidate("c", {}, at, transforms=(transform,), ceiling_ns=40 * US)
        assert predict(facts, candidate).ceiling_ns == 40 * US
        # the device works for 100 of 150 µs
        assert predict(facts, replace(candidate, ceiling_ns=99 * US)).ceiling_ns == 50 * US
    assert most_ns(facts, ()) is None


def test_no_saving_is_rounded_above_its_ceiling() -> None:
    """The median of two steps is not a whole number of ns. It is rounded once, for both the saving and its ceiling."""
    for base in (10, 11):
        parts = [host("work", "operator", at, 5 + at // 100) for at in (0, 100)]
        facts = RuleInput(trace([*(host("step", "step", at, base, step=at // 100) for at in (0, 100)), *parts]))
        found = predict(
            facts, Candidate("c", {}, transforms=(Remove(np.flatnonzero(facts.trace.rows("name", "work"))),))
        )
        assert found.saving_ns == found.ceiling_ns


def test_a_ceiling_that_a_rule_puts_too_low_or_too_high() -> None:
    """Halving 30 µs saves 15 µs. No change of this kind saves more than 30 µs, even if the rule gives another
    ceiling."""
    facts, at = RuleInput(recording()), rows("work")
    for told in (1 * US, 140 * US, None):
        found = predict(facts, Candidate("c", {}, at, transforms=(Scale(at, 0.5),), ceiling_ns=told))
        assert (found.saving_ns, found.ceiling_ns) == (15 * US, 30 * US)


@pytest.mark.parametrize("file", ["pairs/resnet50-workers0.json.gz", "dlrm-8xv100/rank0.json", "h100-qwen05b.json.gz"])
def test_nothing_begins_later_than_in_the_limit(traces: Path, file: str) -> None:
    """The test compares each node, for each case of each advice and for changes of arbitrary sizes."""
    facts = RuleInput(load(traces / "torch" / file))
    kernels = np.flatnonzero(facts.trace.rows("kind", "kernel")).astype(np.int64)[::7]
    operators = np.flatnonzero(facts.trace.rows("kind", "operator")).astype(np.int64)[::50]
    made: list[tuple[Transform, ...]] = [
        (Scale(kernels, 0.3, below=False, host=False),), (Scale(operators, 1.7),), (Unblock(operators),),
        (Move(operators, True, 2 * US),),
    ]  # fmt: skip
    found = [one.candidate.transforms for one in advise(facts.trace).advice if one.prediction.method == "replay"]
    compared = 0
    for changes in (*made, *found):
        limits = [limit(transform) for transform in changes]
        if None in limits:
            continue
        first = play(transformed(facts.replay, [one for some in limits for one in some or ()]))
        for case in Case:
            later = play(transformed(facts.replay, changes, case))[: len(first)]
            assert (first <= later).all()
            compared += 1
    assert compared >= 3 * len(made)


def test_no_saving_is_above_its_ceiling(traces: Path) -> None:
    for file in ("pairs/resnet50-workers4.json.gz", "v100-ns-resolution.json.gz", "gpu-user-annotation-steps.json.gz"):
        for one in advise(load(traces / "torch" / file)).advice:
            p = one.prediction
            if p.ceiling_ns is not None and p.saving_ns is not None:
                assert p.saving_ns <= p.ceiling_ns
                assert (p.saving_p90_ns or 0) <= p.ceiling_ns <= p.base_ns
