"""Tests that rows can be changed and left out. Few changes are made without a copy of all rows; the result is the
same."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.readers.chrome.row_table import Gathering, RowTable
from perfkit_core.readers.chrome.rows import ARGUMENT_TEXTS, NULL, Origin, Origins, Rows, Vocabulary

COUNT = 1000


def rows(count: int = COUNT, args: bool = True) -> Rows:
    number = np.arange(count, dtype=np.int64)
    found = pa.array([None if i % 3 == 0 else f"é{i}" for i in range(count)], pa.string()) if args else None
    integers = {"start_ns": count - number, "dur_ns": number, "stream": number.copy()}
    return Rows(count, (number % 5).astype(np.int32), integers, {"shapes": (number % 2).astype(np.int32)}, found)


def cells(found: Rows) -> list[tuple[object, ...]]:
    """Return the origin, the integers, the texts and the arguments of each row."""
    columns = [found.origin.tolist(), *(values.tolist() for values in found.integers.values())]
    columns += [codes.tolist() for codes in found.texts.values()]
    return list(zip(*columns, found.arguments(np.arange(found.count)), strict=True))


def some(count: int) -> IntArray:
    """Return ``count`` rows and three more, which include the first row, the last row and two adjacent rows."""
    return np.unique(np.concatenate([[0, 1, COUNT - 1], np.linspace(5, COUNT - 5, count).astype(np.int64)]))


@pytest.mark.parametrize("args", [True, False])
@pytest.mark.parametrize("count", [3, 30, 400])
def test_replaced_arguments_are_returned(count: int, args: bool) -> None:
    found, at = rows(args=args), some(count)
    wanted = found.arguments(np.arange(COUNT))
    for row in at.tolist():
        wanted[row] = None if row % 2 else f"other {row}"
    found.replace(at, [wanted[row] for row in at.tolist()])
    assert found.arguments(np.arange(COUNT)) == wanted
    assert bool(found.replaced) == (count == 3)  # many replacements are applied immediately


@pytest.mark.parametrize("first", [3, 30, 400])
@pytest.mark.parametrize("second", [3, 30, 400])
def test_the_last_replacement_is_used(first: int, second: int) -> None:
    found = rows()
    found.replace(some(first), ["first"] * len(some(first)))
    found.replace(some(second), ["second"] * len(some(second)))
    told = found.arguments(np.arange(COUNT))
    assert {row for row in range(COUNT) if told[row] == "second"} == set(some(second).tolist())
    assert {row for row in range(COUNT) if told[row] == "first"} == set(some(first).tolist()) - set(
        some(second).tolist()
    )


@pytest.mark.parametrize("replaced", [0, 7])
@pytest.mark.parametrize("left_out", [3, 30, 400])
def test_rows_that_are_left_out_are_missing(left_out: int, replaced: int) -> None:
    found, out = rows(), some(left_out)
    if replaced:
        found.replace(some(replaced), [f"other {row}" for row in some(replaced).tolist()])
    whole = cells(found)
    parts = found.without(out)
    left = set(range(COUNT)) - set(out.tolist())
    assert [cell for part in parts for cell in cells(part)] == [whole[row] for row in sorted(left)]
    assert all(part.count for part in parts)
    shared = [np.shares_memory(part.origin, found.origin) for part in parts]
    assert (len(parts) == 1, all(shared), any(shared)) == (left_out > 3, left_out == 3, left_out == 3)


def test_all_may_be_left_out_or_none() -> None:
    found = rows()
    assert found.without(np.empty(0, np.int64)) == [found]
    bare = rows(20, args=False)
    assert [part.args for part in bare.without(np.arange(0, 20, 2))] == [None] * 10
    assert [part.args for part in rows(args=False).without(np.arange(0, COUNT, 2))] == [None]
    assert sum(part.count for part in found.without(np.arange(COUNT))) == 0


def test_parts_of_a_stretch_may_replace_arguments() -> None:
    found = rows()
    for part in found.without(np.array([200, 500])):
        wanted = part.arguments(np.arange(part.count))
        for count in (2, part.count // 2):  # a few replacements, then enough to be applied immediately
            wanted[:count] = [f"{count} of {part.count}"] * count
            part.replace(np.arange(count), wanted[:count])
            assert part.arguments(np.arange(part.count)) == wanted
    assert found.arguments(np.array([1, 2, 201])) == ["é1", "é2", None]


def test_rows_without_arguments_are_put_among_others_without() -> None:
    found = rows(args=False)
    found.put(np.array([3]), rows(1, args=False))
    assert set(found.arguments(np.arange(COUNT))) == {None}


def test_rows_that_replace_others_bring_their_arguments() -> None:
    found, other = rows(), rows(3)
    other.integers.pop("stream")
    other.integers["bytes"] = np.array([7, 8, 9])
    found.put(np.array([4, 2, 8]), other)
    assert found.arguments(np.array([2, 4, 8])) == ["é1", None, "é2"]
    assert found.integers["stream"][[2, 4, 8]].tolist() == [NULL] * 3
    assert found.integers["bytes"][[2, 3, 4, 8]].tolist() == [8, NULL, 7, 9]


@pytest.mark.parametrize("count", [200, 70_000])
@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("args", [True, False])
def test_replaced_arguments_are_in_the_table(count: int, in_order: bool, args: bool) -> None:
    """Replaced arguments become a part of the table. For large tables, compiled code copies the texts."""
    known, found, wanted = Origins(), Gathering(), []
    for number in range(5):
        known.number(Origin(f"op {number}", "operator", None, "cpu", None, None, None, 7, 7, None))
    words = {column: Vocabulary() for column in ARGUMENT_TEXTS}
    words["shapes"].numbers(["even", "odd"])
    for _ in range(2):
        part = rows(count, args)
        part.replace(np.array([1, count - 1]), ["ä longer one", None])
        wanted += list(zip(part.integers["start_ns"].tolist(), part.arguments(np.arange(count)), strict=True))
        found.add(part)
    table = RowTable(found.drain(), known, words, 0, in_order).table(compact=False)
    if in_order:
        wanted.sort(key=lambda row: row[0])
    assert list(zip(table["start_ns"].to_pylist(), table["args"].to_pylist(), strict=True)) == wanted
    table.validate(full=True)
