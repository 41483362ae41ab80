"""Properties of the replay of any recording: the unchanged graph repeats it, and less work never takes longer."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.causes.segments import innermost
from perfkit_core.readers.load import load
from perfkit_core.replay import device_work
from perfkit_core.replay.build import build
from perfkit_core.replay.graph import Replay, play
from perfkit_core.replay.host_segments import host_segments
from perfkit_core.replay.transforms import Batch, Insert, Overlap, Remove, Scale, Transform, transformed
from perfkit_core.trace.model.schema import STEP
from perfkit_core.trace.model.trace import Trace, concat_traces
from perfkit_core.views.select import threads
from tests.support.events import host, trace
from tests.support.recordings import recordings
from tests.support.replayed import played_ns

Rows = list[dict[str, Any]]
NOTHING: IntArray = np.empty(0, np.int64)


def chosen(found: Trace, seed: int, share: float = 0.3) -> IntArray:
    """Return some events that are not steps."""
    rows = np.flatnonzero(~found.rows("kind", STEP))
    return rows[np.random.default_rng(seed).random(len(rows)) < share]


def leaves(found: Trace) -> IntArray:
    """Return host operators that contain no event. Changes of two such operators are independent of each other."""
    inner = np.zeros(len(found), np.bool_)
    inner[found.ints("parent")[found.ints("parent") >= 0]] = True
    return np.flatnonzero(found.host & found.rows("kind", "operator") & ~inner)


def repeats(found: Trace, replay: Replay) -> None:
    """Every node starts as recorded, every host event begins and ends with a node, and steps take the time of their
    events."""
    start = replay.graph.start_ns
    assert (play(replay.graph) == start).all()
    rows = np.flatnonzero(replay.first >= 0)
    assert (start[replay.first[rows]] == found.ints("start_ns")[rows]).all()
    assert (start[replay.after[rows]] == found.end_ns[rows]).all()
    rows = np.flatnonzero(found.host & found.rows("kind", STEP) & (replay.first >= 0))
    if len(rows):
        assert played_ns(replay) == found.ints("dur_ns")[rows].tolist()


@given(recordings(), st.integers(0, 99), st.sampled_from([0.0, 0.3, 0.9]), st.integers(1, 500_000))
def test_less_work_never_takes_longer_and_more_never_less(rows: Rows, seed: int, factor: float, added: int) -> None:
    """The unchanged graph repeats the recording, and edits of nothing change nothing. Work that moves to another
    thread, or becomes one launch, is less work."""
    found = trace(rows)
    replay, some, beside = build(found), chosen(found, seed), leaves(found)[:: 1 + seed % 3]
    repeats(found, replay)
    before = play(replay.graph)

    def after(transform: Transform) -> IntArray:
        return play(transformed(replay, [transform]))[: len(before)]

    for transform in (Scale(some, 1), Insert(some), Remove(NOTHING), Scale(NOTHING, 7)):
        assert (after(transform) == before).all()
    for transform in (Scale(some, factor), Remove(some), Overlap(beside, np.full(len(beside), -1))):
        assert (after(transform) <= before).all()
    calls = np.flatnonzero(found.rows("kind", "runtime"))[: 1 + seed % 5]
    if len(calls):
        assert (after(Batch(calls, host_ns=0, gap_ns=0)) <= before).all()
    for transform in (Insert(some, host_ns=added, device_ns=added), Scale(some, 2)):
        assert (after(transform) >= before).all()


@given(recordings(), st.integers(0, 99))
def test_the_order_of_edges_and_of_independent_edits_does_not_matter(rows: Rows, seed: int) -> None:
    """Edges that are said to be in order give the same result as the same edges in any other order."""
    found = trace(rows)
    replay, some = build(found), chosen(found, seed)
    beside, thread = leaves(found), found.ints("tid")
    beside = beside[np.lexsort((found.ints("start_ns")[beside], thread[beside]))]
    behind = np.append(beside[1:], -1)[: len(beside)]
    behind[thread[behind] != thread[beside]] = -1
    for change in (Scale(some, 0.5), Remove(some), Overlap(beside, behind, 3.0)):
        graph = transformed(replay, [Insert(some, 999), change])
        mixed = graph.edges.at(np.random.default_rng(seed).permutation(len(graph.edges)))
        assert replay.graph.edges.in_order
        assert not mixed.in_order
        assert (play(graph) == play(replace(graph, edges=mixed))).all()
    leaf = leaves(found)
    leaf = leaf[np.random.default_rng(seed).permutation(len(leaf))]
    changes = [Scale(leaf[0::3], 0.5), Insert(leaf[1::3], host_ns=9_999), Remove(leaf[2::3])]
    first = play(transformed(replay, changes))
    random.Random(seed).shuffle(changes)
    assert (play(transformed(replay, changes)) == first).all()


@given(recordings(), st.integers(0, 99), st.integers(-(10**15), 10**15))
def test_the_order_of_rows_and_the_clock_do_not_matter(rows: Rows, seed: int, clock: int) -> None:
    mixed = [row | {"start_ns": row["start_ns"] + clock} for row in rows]
    random.Random(seed).shuffle(mixed)

    def played(found: Trace) -> list[int]:
        names = found.codes("name")
        some = [i for i, code in enumerate(names.codes) if code >= 0 and sum(names.values[code].encode()) % 3 == 0]
        return played_ns(build(found), Scale(np.array(some, np.int64), 0.4, below=False))

    assert played(trace(rows)) == played(trace(mixed))


@given(recordings(), recordings(), st.integers(0, 99))
def test_ranks_without_collectives_are_independent(one: Rows, other: Rows, seed: int) -> None:
    """Except for the usual lags, which are estimated from all ranks and are constants here."""
    parts = [trace(one, rank=0), trace(other, rank=1)]
    # if another rank has steps, a rank without steps has no step time
    assume(all(part.rows("kind", "step").any() for part in parts))
    both = concat_traces(parts)
    some = chosen(parts[1], seed)
    with patch.object(device_work, "_usual", lambda lags, otherwise: otherwise):
        alone = played_ns(build(parts[0])) + played_ns(build(parts[1]), Scale(some, 0.5))
        assert played_ns(build(both), Scale(some + len(parts[0]), 0.5)) == alone


def test_overlapping_events_end_as_recorded() -> None:
    """Python frames and labelled ranges overlap without nesting. The step ends as recorded, not with the frame."""
    found = trace(
        [
            host("step 0", "step", 0, 100, step=0),
            host("frame", "python", 40, 100),
            host("step 1", "step", 110, 90, step=1),
            host("inside", "operator", 150, 20),
        ]
    )
    replay = build(found)
    repeats(found, replay)
    assert played_ns(replay) == [100, 90]
    assert played_ns(replay, Remove(np.flatnonzero(found.rows("name", "frame")))) == [40, 90]


def test_real_recordings_of_torch(torch_file: Path) -> None:
    found = load(torch_file)
    replay = build(found)
    repeats(found, replay)
    before, some = play(replay.graph), chosen(found, 1)
    assert (play(transformed(replay, [Scale(some, 0.5)])) <= before).all()
    assert (play(transformed(replay, [Insert(some, host_ns=500, device_ns=500)])) >= before).all()


def test_real_recordings_of_paddle(paddle_file: Path) -> None:
    found = load(paddle_file)
    replay = build(found)
    repeats(found, replay)
    assert (np.array(played_ns(replay, Remove(chosen(found, 1)))) <= played_ns(replay)).all()


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8), st.integers(1, 3)), min_size=1, max_size=12))
def test_segments_have_the_innermost_event_at_each_time(events: list[tuple[int, int, int]]) -> None:
    """The innermost event is the one that began last, counted for each nanosecond. The account has the same events."""
    recorded = trace(
        [host(f"op {at}", "operator", *event) for at, event in enumerate(events)] or [host("op", "op", 0, 1)]
    )
    segments, code = host_segments(recorded), threads(recorded).code
    start, end = recorded.ints("start_ns"), recorded.end_ns
    rows = np.flatnonzero(recorded.operators)
    for first, last, row, thread in zip(segments.start_ns, segments.end_ns, segments.row, segments.thread, strict=True):
        for now in range(first, last):
            in_thread = [at for at in rows.tolist() if segments.thread[segments.first[at]] == thread]
            open_rows = [at for at in in_thread if start[at] <= now < end[at]]
            assert row == max(open_rows, default=-1, key=lambda at: (start[at], -end[at], at))
            if open_rows:
                begin, finish, event = innermost(recorded, int(code[open_rows[0]]))
                assert event[(begin <= now) & (now < finish)].tolist() == [row]
    assert np.array_equal(segments.start_ns[segments.first[rows]], start[rows])
    assert np.array_equal(segments.start_ns[segments.after[rows]], end[rows])
