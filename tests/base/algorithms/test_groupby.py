"""Tests of the numbering of groups against pandas and numpy, and of results that views share."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from perfkit_core.base.algorithms import arrays, groupby, intervals
from perfkit_core.views.attribution import owners
from tests.support.small_trace import small_trace

RANDOM = np.random.default_rng(7)


@pytest.mark.parametrize("high", [3, 10**15])
def test_groups_are_numbered_by_first_appearance(high: int) -> None:
    numbers = RANDOM.integers(0, high, 500) // max(high // 5, 1)
    texts = pd.Categorical.from_codes(RANDOM.integers(-1, 3, 500), categories=["a", "b", "c"])
    wide = pd.arrays.IntegerArray(RANDOM.integers(0, 2, 500) * high, RANDOM.integers(0, 2, 500).astype(np.bool_))
    code, first = groupby.distinct([numbers, texts, wide], 500)
    frame = pd.DataFrame({"numbers": numbers, "texts": texts, "wide": wide})
    expected = frame.groupby(list(frame), sort=False, dropna=False, observed=True).ngroup().to_numpy()
    assert code.tolist() == expected.tolist()
    assert first.tolist() == [expected.tolist().index(group) for group in range(expected.max() + 1)]


def test_no_rows_have_no_groups() -> None:
    code, first = groupby.distinct([np.empty(0, np.int64)], 0)
    assert len(code) == len(first) == 0
    assert groupby.parts(code, 0) == []


@pytest.mark.parametrize("sizes", [(), (1,), (0, 3, 200, 1), (100, 100)])
def test_groups_of_blocks_are_those_of_complete_columns(sizes: tuple[int, ...]) -> None:
    rows = sum(sizes)
    columns = [RANDOM.integers(0, 3, rows), RANDOM.integers(0, 2, rows) * 10**15, np.full(rows, 7)]
    cuts = np.cumsum((0, *sizes))
    blocks = ([column[a:b] for column in columns] for a, b in itertools.pairwise(cuts) if a < b)
    code, first, keys = groupby.distinct_in_blocks(blocks, rows, 3)
    expected = groupby.distinct(columns, rows)
    assert (code.tolist(), first.tolist()) == (expected[0].tolist(), expected[1].tolist())
    assert keys.tolist() == [column[first].tolist() for column in columns]


def test_parts_of_any_length_are_aligned() -> None:
    cells = np.arange(150_000)
    columns = [iter(np.split(cells, cuts)) for cuts in ([3, 3, 70_000], [149_999])]
    blocks = list(arrays.aligned(columns))
    assert all(len(one) == len(other) <= arrays.BLOCK for one, other in blocks)
    for number in range(2):
        assert np.array_equal(np.concatenate([block[number] for block in blocks]), cells)


@pytest.mark.parametrize("width", [20, 10**9])
def test_ranked_equals_numpy(width: int) -> None:
    key = RANDOM.integers(0, width, 300)
    values, position = groupby.ranked(key, width)
    expected, inverse = np.unique(key, return_inverse=True)
    assert values.tolist() == expected.tolist()
    assert position.tolist() == inverse.tolist()


def test_parts_hold_the_rows_of_each_key_in_order() -> None:
    key = np.array([2, 0, 2, 2, 0])
    assert [part.tolist() for part in groupby.parts(key, 4)] == [[1, 4], [], [0, 2, 3], []]


def test_unions_of_groups_equal_the_union_of_each_group() -> None:
    group = RANDOM.integers(-1, 4, 400)
    start = RANDOM.integers(0, 1000, 400)
    end = start + RANDOM.integers(-3, 12, 400)
    of, starts, ends = intervals.union_by(group, 4, start, end)
    lengths = intervals.union_length_by(group, 4, start, end)
    for one in range(4):
        alone = intervals.union(start[group == one], end[group == one])
        assert [starts[of == one].tolist(), ends[of == one].tolist()] == [alone[0].tolist(), alone[1].tolist()]
        assert lengths[one] == intervals.length(alone)


def test_shared_results_are_computed_once_and_read_only() -> None:
    trace = small_trace()
    assert owners(trace) is owners(trace)
    with pytest.raises(ValueError, match="read-only"):
        owners(trace)[0] = 1
