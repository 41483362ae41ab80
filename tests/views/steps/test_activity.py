"""Exclusive times of windows, against a count of single nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perfkit_core.base.algorithms import intervals
from perfkit_core.views.steps.activity import exclusive_ns

Pairs = list[tuple[int, int]]
PAIRS = st.lists(st.tuples(st.integers(-20, 40), st.integers(0, 15)).map(lambda p: (p[0], p[0] + p[1])), max_size=8)


def arrays(pairs: Pairs) -> intervals.Intervals:
    return np.array([p[0] for p in pairs], np.int64), np.array([p[1] for p in pairs], np.int64)


def first(layers: list[Pairs], time: int) -> int:
    """Return the index of the first layer that covers the time, the number of layers if none does."""
    for index, pairs in enumerate(layers):
        if any(start <= time < end for start, end in pairs):
            return index
    return len(layers)


@given(st.lists(PAIRS, max_size=4), PAIRS)
def test_each_nanosecond_belongs_to_the_first_layer_that_covers_it(layers: list[Pairs], windows: Pairs) -> None:
    found = exclusive_ns([intervals.union(*arrays(pairs)) for pairs in layers], *arrays(windows))
    assert found.shape == (len(windows), len(layers) + 1)
    for row, (start, end) in zip(found.tolist(), windows, strict=True):
        owners = [first(layers, time) for time in range(start, end)]
        assert row == [owners.count(index) for index in range(len(layers) + 1)]


def test_times_beyond_floats_are_exact() -> None:
    """Nanoseconds since 1970 do not fit into a double."""
    start = 1_795_229_121_226_265_637
    layer = (np.array([start + 1]), np.array([start + 2]))
    assert exclusive_ns([layer], np.array([start]), np.array([start + 3])).tolist() == [[1, 2]]
