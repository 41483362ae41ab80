"""Advice on several ranks does not depend on the order of the files or on the clocks of the ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from perfkit_core.advice.engine import advise
from perfkit_core.advice.explain import document
from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.readers.load import load
from perfkit_core.replay.build import build
from perfkit_core.replay.graph import play
from perfkit_core.replay.played_steps import steps
from perfkit_core.replay.transforms import Load, Shorten, Transform, transformed
from perfkit_core.trace.model.trace import Trace, concat_traces
from tests.support.events import host, trace

HOURS_NS = 3 * 3600 * 10**9
KEPT = ("rule", "what", "evidence", "prediction")


@pytest.fixture(scope="module")
def ranks(traces: Path) -> list[Trace]:
    return [load(path) for path in sorted((traces / "torch" / "dlrm-8xv100").glob("*.json"))]


def said(parts: list[Trace]) -> list[dict[str, Any]]:
    whole = concat_traces(parts)
    found = document(advise(whole), whole)
    advice = [*found["advice"], *found["without_saving"]]
    return json.loads(json.dumps([{key: one[key] for key in KEPT} for one in advice]))


def shifted(part: Trace, by_ns: int) -> Trace:
    start, end = part.meta.window_ns or (0, 0)
    moved = part.with_columns(start_ns=pa.array(part.ints("start_ns") + by_ns))
    return moved.with_meta(window_ns=(start + by_ns, end + by_ns))


def test_the_order_of_the_files_does_not_matter(ranks: list[Trace]) -> None:
    usual = said(ranks)
    assert len(usual) > 5
    assert said([ranks[n] for n in (2, 4, 6, 0, 7, 3, 5, 1)]) == usual


@pytest.mark.parametrize("rank", [0, 2])
def test_clocks_that_are_hours_apart_do_not_matter(ranks: list[Trace], rank: int) -> None:
    moved = [shifted(part, HOURS_NS) if number == rank else part for number, part in enumerate(ranks)]
    assert said(moved) == said(ranks)


def test_times_are_computed_for_each_rank(ranks: list[Trace]) -> None:
    """The expected device work of rank 0 within its steps, and the time of its loader, are computed from the events."""
    facts = RuleInput(concat_traces(ranks[::-1]))
    (launches,) = [one for one in said(ranks[::-1]) if one["rule"] == "launch-bound"]
    assert facts.rank == 0
    assert launches["evidence"]["device_busy_ns"] == 6_590_000
    assert facts.within_steps(facts.activity.loading).tolist() == [1_101_000]


def played(found: Trace, transform: Transform) -> list[list[int]]:
    """Return the step times of each rank in ns."""
    replay = build(found)
    own = steps(replay)
    times = own.played_ns(play(transformed(replay, [transform])))
    return [times[own.rank == rank].tolist() for rank in np.unique(own.rank)]


def test_every_rank_has_its_own_loader() -> None:
    def loading(rank: int, begin: int) -> Trace:
        events = []
        for step in range(3):
            start = begin + 100_000 * step
            events += [host("step", "step", start, 100_000, step=step), host("next", "dataloader", start, 60_000)]
        return trace(events, rank=rank)

    alone = played(loading(0, 0), Load(np.array([1, 3, 5]), 1))
    both = concat_traces([loading(1, 7_000), loading(0, 0)])
    rows = np.flatnonzero(both.rows("kind", "dataloader"))
    assert played(both, Load(rows, 1)) == alone * 2


def test_gaps_are_of_one_rank() -> None:
    def stepping(rank: int) -> Trace:
        return trace([host("step", "step", 0, 100, step=0), host("work", "operator", 20, 60)], rank=rank)

    both = concat_traces([stepping(0), stepping(1)])
    gaps = np.array([0, 80]), np.array([20, 100])
    assert played(both, Shorten({1: gaps}, 0)) == [[100], [60]]
    assert played(both, Shorten({0: gaps, 1: gaps}, 0.5)) == [[80], [80]]
