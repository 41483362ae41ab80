"""Property tests: timelines are compared with a simple computation for every single nanosecond."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit_core.compare.attribute.attribute import count_effect
from perfkit_core.compare.slices import Timeline, cut, first_come, innermost, shared_out, under

SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=8)
TIMES = range(45)


def arrays(spans: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([s for s, _ in spans], np.int64), np.array([s + d for s, d in spans], np.int64)


def owners(found: Timeline) -> list[int]:
    """Return the row of each nanosecond, -1 if none. Pieces must be sorted and disjoint."""
    starts, ends, rows = found
    assert (starts[1:] >= ends[:-1]).all()
    assert (ends > starts).all()
    inside = [np.flatnonzero((starts <= time) & (time < ends)) for time in TIMES]
    return [int(rows[at[0]]) if len(at) else -1 for at in inside]


def running(spans: list[tuple[int, int]], time: int) -> list[int]:
    return [row for row, (start, dur) in enumerate(spans) if start <= time < start + dur]


@given(SPANS)
def test_innermost_is_what_started_last(spans: list[tuple[int, int]]) -> None:
    starts, ends = arrays(spans)
    found = owners(innermost(np.arange(len(spans)), starts, ends))
    for time, row in zip(TIMES, found, strict=True):
        expected = max(running(spans, time), key=lambda r: (spans[r][0], -spans[r][1], r), default=-1)
        assert row == expected


@given(SPANS)
def test_first_come_keeps_its_time(spans: list[tuple[int, int]]) -> None:
    starts, ends = arrays(spans)
    found = owners(first_come(np.arange(len(spans)), starts, ends))
    keeper = -1
    for time, row in zip(TIMES, found, strict=True):
        if keeper not in running(spans, time):
            keeper = min(running(spans, time), key=lambda r: (spans[r][0], -spans[r][1], r), default=-1)
        assert row == keeper


@given(SPANS, SPANS, SPANS)
def test_under_and_cut(
    first: list[tuple[int, int]], second: list[tuple[int, int]], windows: list[tuple[int, int]]
) -> None:
    upper, lower = (first_come(np.arange(len(spans)), *arrays(spans)) for spans in (first, second))
    both = under(upper, lower)
    expected = [one if one >= 0 else other for one, other in zip(owners(upper), owners(lower), strict=True)]
    assert owners(both) == expected
    piece, begin, finish, row, window = cut(*arrays(windows), both)
    for at, (start, dur) in enumerate(windows):
        mine = window == at
        assert (finish - begin)[mine].sum() == dur
        told = [int(r) for b, f, r in zip(begin[mine], finish[mine], row[mine], strict=True) for _ in range(f - b)]
        assert told == expected[start : start + dur]
    assert ((piece >= 0) == (row >= 0)).all()


COUNTS = st.integers(0, 50)
NS = st.integers(0, 10**15)


@settings(max_examples=200)
@given(NS, NS, COUNTS, COUNTS, st.integers(1, 9), st.integers(1, 9))
def test_count_effects_change_their_sign_with_the_sides(t0: int, t1: int, c0: int, c1: int, n0: int, n1: int) -> None:
    found = count_effect(t0, t1, c0, c1, n0, n1)
    assert found == -count_effect(t1, t0, c1, c0, n1, n0)
    if c0 and c1:
        exact = (c1 / n1 - c0 / n0) * (t0 * n0 / c0 + t1 * n1 / c1) / 2
        assert abs(found - exact) <= 1 + abs(exact) * 1e-12
        assert (found == 0) or (c1 * n0 != c0 * n1)


@given(st.lists(NS, max_size=20), st.integers(1, 9))
def test_shares_are_integers_that_sum_to_the_rounded_mean(totals: list[int], count: int) -> None:
    found = shared_out(totals, count)
    assert found.sum() == (2 * sum(totals) + count) // (2 * count)
    assert all(abs(one - total / count) <= 1 for one, total in zip(found.tolist(), totals, strict=True))
