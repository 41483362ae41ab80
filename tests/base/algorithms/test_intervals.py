"""Tests that the interval algebra is equal to sets of single nanoseconds, and that its laws hold."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perfkit_core.base.algorithms import intervals

Pairs = list[tuple[int, int]]
PAIRS = st.lists(st.tuples(st.integers(-20, 40), st.integers(-3, 15)).map(lambda p: (p[0], p[0] + p[1])), max_size=12)


def arrays(pairs: Pairs) -> intervals.Intervals:
    return np.array([p[0] for p in pairs], np.int64), np.array([p[1] for p in pairs], np.int64)


def points(pairs: Pairs) -> set[int]:
    return {point for start, end in pairs for point in range(start, end)}


def covered(found: intervals.Intervals) -> set[int]:
    return points(list(zip(found[0].tolist(), found[1].tolist(), strict=True)))


@given(PAIRS)
def test_union_is_the_same_points_disjoint_sorted_and_apart(pairs: Pairs) -> None:
    starts, ends = intervals.union(*arrays(pairs))
    assert covered((starts, ends)) == points(pairs)
    assert (ends > starts).all()
    assert (starts[1:] > ends[:-1]).all()


@given(PAIRS)
def test_union_is_at_most_the_sum_and_idempotent(pairs: Pairs) -> None:
    once = intervals.union(*arrays(pairs))
    assert intervals.length(once) == len(points(pairs)) <= sum(max(end - start, 0) for start, end in pairs)
    twice = intervals.union(*once)
    assert np.array_equal(once, twice)


@given(PAIRS, st.randoms(use_true_random=False))
def test_union_does_not_depend_on_the_order(pairs: Pairs, random: Random) -> None:
    shuffled = random.sample(pairs, len(pairs))
    assert np.array_equal(intervals.union(*arrays(pairs)), intervals.union(*arrays(shuffled)))


@given(PAIRS, PAIRS)
def test_intersect_and_subtract_equal_set_operations(a: Pairs, b: Pairs) -> None:
    left, right = intervals.union(*arrays(a)), intervals.union(*arrays(b))
    assert covered(intervals.intersect(left, right)) == points(a) & points(b)
    assert covered(intervals.subtract(left, right)) == points(a) - points(b)


@given(PAIRS, PAIRS)
def test_intersection_and_difference_add_up(a: Pairs, b: Pairs) -> None:
    left, right = intervals.union(*arrays(a)), intervals.union(*arrays(b))
    shared, rest = intervals.intersect(left, right), intervals.subtract(left, right)
    assert intervals.length(shared) + intervals.length(rest) == intervals.length(left)


@given(st.lists(st.tuples(st.integers(-1, 4), st.integers(0, 30), st.integers(-2, 10)), max_size=25))
def test_union_length_by_is_the_union_length_of_each_group(rows: list[tuple[int, int, int]]) -> None:
    groups, starts, lengths = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    found = intervals.union_length_by(groups, 5, starts, starts + lengths)
    expected = [len(points([(s, s + n) for g, s, n in rows if g == group])) for group in range(5)]
    assert found.tolist() == expected


@given(st.lists(st.tuples(st.integers(-1, 5), st.integers(0, 30), st.integers(-2, 10)), max_size=25), PAIRS, PAIRS)
def test_length_inside_counts_the_points_of_each_group_in_its_windows(
    rows: list[tuple[int, int, int]], even: Pairs, odd: Pairs
) -> None:
    groups, starts, lengths = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    windows = [intervals.union(*arrays(pairs)) for pairs in (even, odd)]
    found = intervals.length_inside(groups, 6, starts, starts + lengths, windows)
    inside = [points(even), points(odd)]
    expected = [len(points([(s, s + n) for g, s, n in rows if g == group]) & inside[group % 2]) for group in range(6)]
    assert found.tolist() == expected


@given(PAIRS, PAIRS.map(lambda pairs: [(start, max(start, end)) for start, end in pairs]))
def test_covered_is_the_intersection_with_each_window(layer: Pairs, windows: Pairs) -> None:
    union = intervals.union(*arrays(layer))
    expected = [intervals.length(intervals.intersect(union, intervals.union(*arrays([window])))) for window in windows]
    assert intervals.covered_ns(union, *arrays(windows)).tolist() == expected


def test_union_length_by_of_far_groups_does_not_overflow() -> None:
    """Two groups are a century apart, and there are so many groups that group · span overflows."""
    century = 3_155_760_000 * 10**9
    starts = np.array([0, 5, century, century + 5], np.int64)
    count = 10_000_000
    groups = np.array([0, 0, count - 1, count - 1], np.int64)
    found = intervals.union_length_by(groups, count, starts, starts + 10)
    assert (found[0], found[-1], found.sum()) == (15, 15, 30)


def test_epoch_nanoseconds_keep_every_digit() -> None:
    """At 1.7e18 ns a float64 step is 256 ns; the algebra stays in integers."""
    start = 1_700_000_000_123_456_789
    a = intervals.union(np.array([start]), np.array([start + 3]))
    b = intervals.union(np.array([start + 1]), np.array([start + 2]))
    assert intervals.intersect(a, b)[0].tolist() == [start + 1]
    assert intervals.length(intervals.subtract(a, b)) == 2
