"""Tests that parents and self times are equal to a literal implementation of their definitions."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit_core.base.algorithms import nesting

Events = list[tuple[int, int, int]]
EVENTS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 14), st.integers(0, 8)), max_size=22)


def columns(events: Events) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    thread, start, duration = (np.array([event[i] for event in events], np.int64) for i in range(3))
    return thread, start, start + duration


def naive_parents(events: Events) -> list[int]:
    """Return the parent of each event by the definition: of the events around it, the event with the latest start. If
    several events have this start, the parent is the shortest of them."""
    spans = [(thread, start, start + duration) for thread, start, duration in events]
    order = sorted(range(len(spans)), key=lambda row: (spans[row][1], -spans[row][2], row))
    place = {row: i for i, row in enumerate(order)}
    parents = []
    for row, (thread, start, end) in enumerate(spans):
        around = [
            other
            for other, (other_thread, other_start, other_end) in enumerate(spans)
            if other_thread == thread
            and other_start <= start < other_end
            and end <= other_end
            and place[other] < place[row]
        ]
        parents.append(max(around, key=place.__getitem__, default=-1))
    return parents


@given(EVENTS)
def test_parents_match_the_definition(events: Events) -> None:
    """The events include partial overlaps, zero durations, equal starts and several threads."""
    assert nesting.nest(*columns(events)).tolist() == naive_parents(events)


@given(EVENTS)
def test_self_time_plus_union_of_children_is_the_duration(events: Events) -> None:
    thread, start, end = columns(events)
    parent = nesting.nest(thread, start, end)
    own = nesting.self_times(parent, start, end)
    for row in range(len(events)):
        children = np.flatnonzero(parent == row)
        inside = {t for child in children for t in range(start[child], end[child])}
        assert own[row] == end[row] - start[row] - len(inside)
        assert own[row] >= 0


@given(EVENTS, st.integers(0, 1000))
def test_permuting_rows_changes_nothing_but_their_numbers(events: Events, seed: int) -> None:
    shuffled = Random(seed).sample(events, len(events))
    assert described(events) == described(shuffled)


def described(events: Events) -> list[tuple[object, ...]]:
    """Return each event with its parent's span, its depth and its self time, without row numbers."""
    thread, start, end = columns(events)
    parent = nesting.nest(thread, start, end)
    own = nesting.self_times(parent, start, end)
    found = []
    for row, event in enumerate(events):
        path, above = 0, row
        while parent[above] >= 0:
            path, above = path + 1, int(parent[above])
        found.append((event, events[parent[row]] if parent[row] >= 0 else None, path, int(own[row])))
    return sorted(found, key=repr)


@st.composite
def trees(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    count = draw(st.integers(1, 30))
    parent = [-1] + [draw(st.integers(-1, row - 1)) for row in range(1, count)]
    values = draw(st.lists(st.integers(-1, 9), min_size=count, max_size=count))
    return np.array(parent, np.int64), np.array(values, np.int64)


def path_to_root(parent: np.ndarray, row: int) -> list[int]:
    path = [row]
    while parent[path[-1]] >= 0:
        path.append(int(parent[path[-1]]))
    return path


@given(trees())
def test_sums_and_lookups_along_paths_equal_a_tree_walk(tree: tuple[np.ndarray, np.ndarray]) -> None:
    parent, values = tree
    paths = [path_to_root(parent, row) for row in range(len(parent))]
    below = [[row for row in range(len(parent)) if top in paths[row]] for top in range(len(parent))]
    assert nesting.sum_down(parent, values).tolist() == [sum(values[p]) for p in paths]
    assert nesting.sum_up(parent, values).tolist() == [sum(values[rows]) for rows in below]
    known = [[int(values[row]) for row in reversed(path) if values[row] >= 0] for path in paths]
    assert nesting.first_on_path(parent, values).tolist() == [found[0] if found else -1 for found in known]
    wanted = values > 4
    nearest = [next((row for row in path if wanted[row]), -1) for path in paths]
    assert nesting.nearest_on_path(parent, wanted).tolist() == nearest
    outermost = [next((row for row in reversed(path) if wanted[row]), -1) for path in paths]
    assert nesting.outermost(parent, wanted).tolist() == outermost
    above = [next((row for row in path[1:] if wanted[row]), -1) for path in paths]
    assert nesting.nearest_above(parent, wanted).tolist() == above
    assert nesting.lies_in(parent, wanted).tolist() == [row >= 0 for row in above]
    assert nesting.holds(parent, wanted).tolist() == [wanted[rows].sum() > wanted[rows[0]] for rows in below]


@given(EVENTS, st.sets(st.integers(0, 30)))
def test_selected_rows_of_a_sorted_table_nest_like_a_table_of_their_own(events: Events, left_out: set[int]) -> None:
    """Parents are rows of the complete table. Events that are left out have no parents and are no parents."""
    thread, start, end = columns(sorted(events, key=lambda event: (event[1], -event[2])))
    inside = np.array([row not in left_out for row in range(len(events))], np.bool_)
    rows = np.flatnonzero(inside)
    parent = nesting.nest_in_order(inside, thread % 2, thread // 2, start, end)
    alone = nesting.nest(thread[rows], start[rows], end[rows])
    assert parent[rows].tolist() == [int(rows[row]) if row >= 0 else -1 for row in alone]
    assert all(parent[row] == -1 for row in left_out if row < len(events))
    own = nesting.self_times_in_order(inside, parent, start, end)
    assert own[rows].tolist() == nesting.self_times(alone, start[rows], end[rows]).tolist()
    wanted = inside & (start % 3 > 0)
    some = nesting.self_times_in_order(wanted, parent, start, end)
    assert some.tolist() == np.where(wanted, own, -1).tolist()


@pytest.mark.parametrize("threads", [5, 33, 3000])
def test_any_number_of_threads_is_distinguished(threads: int) -> None:
    """The numbers include negative ones, and ones that differ only in high bits, like those of pthreads."""
    keys = [
        (process, number << shift) for process in (-1, 7, 7 << 20) for number in range(-3, threads) for shift in (0, 44)
    ]
    distinct = list(dict.fromkeys(keys))
    process, thread = np.array(distinct * 3, np.int64).T
    start = np.repeat(np.arange(3, dtype=np.int64), len(distinct))
    parent = nesting.nest_in_order(np.ones(len(start), np.bool_), process, thread, start, 10 - start)
    above = np.arange(len(start)) - len(distinct)
    assert parent.tolist() == np.maximum(above, -1).tolist()


def test_a_hundred_thousand_nested_events_need_no_recursion() -> None:
    """Each event is inside the one before, deeper than any call stack."""
    count = 100_000
    start = np.arange(count, dtype=np.int64)
    parent = nesting.nest(np.zeros(count, np.int64), start, 2 * count - start)
    assert parent.tolist() == list(range(-1, count - 1))
    assert nesting.self_times(parent, start, 2 * count - start)[:-1].tolist() == [2] * (count - 1)
