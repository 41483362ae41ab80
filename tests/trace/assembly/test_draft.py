"""The order of the event table: events are sorted by start, then by descending duration, then by recorded order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from perfkit_core.trace.assembly.draft import arranged, by_time

SMALL = st.integers(0, 4)


@given(st.lists(st.tuples(SMALL, SMALL), max_size=40))
@example([])
@example([(1, 1)])
@example([(1, 2), (1, 2), (1, 1)])
@example([(1, 1), (1, 2)])
def test_order_is_that_of_a_stable_sort(events: list[tuple[int, int]]) -> None:
    start, dur = np.array(events, np.int64).reshape(-1, 2).T
    expected = sorted(range(len(events)), key=lambda i: (events[i][0], -events[i][1]))
    found = by_time(start, dur)
    assert (list(range(len(events))) if found is None else found.tolist()) == expected


def test_events_in_order_are_not_moved() -> None:
    assert by_time(np.array([1, 1, 2]), np.array([5, 5, 9])) is None


def test_columns_in_pieces_are_put_in_order_each_in_its_type() -> None:
    numbers = pa.chunked_array([pa.array([1, 2], pa.int32()), pa.array([None], pa.int32())])
    texts = pa.chunked_array([pa.array(["a", "b"]).dictionary_encode(), pa.array(["b"]).dictionary_encode()])
    types = {"number": pa.int64(), "text": pa.dictionary(pa.int32(), pa.string())}
    given = {"number": numbers, "text": texts}
    found = arranged(given, types, np.array([2, 0, 1]))
    assert {name: column.to_pylist() for name, column in found.items()} == {
        "number": [None, 1, 2],
        "text": ["b", "a", "b"],
    }
    assert {name: column.type for name, column in found.items()} == types
    assert not given, "their memory is free"
