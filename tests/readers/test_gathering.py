"""Tests that rows added in several parts are equal to the same rows added together, for any columns of the parts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from perfkit_core.base.algorithms import arrays
from perfkit_core.readers.chrome import row_table
from perfkit_core.readers.chrome.row_table import Gathering, RowTable
from perfkit_core.readers.chrome.rows import ARGUMENT_TEXTS, NULL, Origin, Origins, Rows, Vocabulary

SIZES = (3, 5, 0, 1, 20, 2, 2, 7)


def origin(name: str, tid: int | None) -> Origin:
    return Origin(name, "operator", None, "cpu", None, None, None, 7, tid, None)


def stretch(first: int, count: int, args: bool, known: Origins) -> Rows:
    """Make rows with decreasing times. Every third row has a stream, every second row has shapes, and every fourth has
    no arguments."""
    number = np.arange(first, first + count, dtype=np.int64)
    integers = {"start_ns": 1000 - number // 2, "dur_ns": number % 5}
    if first % 3 == 0:
        integers["stream"] = number % 7
    texts = {"shapes": (number % 2).astype(np.int32)} if first % 2 == 0 else {}
    origins = [known.number(origin(f"op {i % 4}", None if i % 4 == 1 else i % 3)) for i in number.tolist()]
    found = pa.array([None if i % 4 == 2 else "é" * (i % 6) for i in number.tolist()], pa.string()) if args else None
    return Rows(count, np.array(origins, np.int32), integers, texts, found)


def expected(first: int, count: int, args: bool) -> list[dict[str, object]]:
    """Return the cells of :func:`stretch` as rows."""
    return [
        {
            "start_ns": 1000 - i // 2, "dur_ns": i % 5, "stream": i % 7 if first % 3 == 0 else None,
            "shapes": ("even", "odd")[i % 2] if first % 2 == 0 else None, "name": f"op {i % 4}", "pid": 7,
            "tid": None if i % 4 == 1 else i % 3, "step": None, "category": None, "kind": "operator",
            "args": "é" * (i % 6) if args and i % 4 != 2 else None,
        } for i in range(first, first + count)
    ]  # fmt: skip


@pytest.fixture(params=[(1 << 20, 1 << 26, 2**31 - 1), (0, 64, 10)])
def rooms(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test twice: with the usual limits, and with limits so low that even a few rows need mapped memory and
    several arrays."""
    small_bytes, room_bytes, offsets_end = request.param
    monkeypatch.setattr(arrays, "SMALL_BYTES", small_bytes)
    monkeypatch.setattr(row_table, "_MIN_LARGE_BYTES", room_bytes)
    monkeypatch.setattr(arrays, "OFFSETS_END", offsets_end)


@pytest.mark.usefixtures("rooms")
@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("compact", [False, True])
def test_stretches_become_one_table(in_order: bool, compact: bool) -> None:
    known, words = Origins(), {column: Vocabulary() for column in ARGUMENT_TEXTS}
    known.number(origin("in no event", None))
    words["shapes"].numbers(["even", "odd", "in no event"])
    found, wanted, first = Gathering(), [], 0
    for size in SIZES:
        found.add(stretch(first, size, size != 5, known))
        wanted += expected(first, size, size != 5)
        first += size
    assert found.count == first
    rows = found.drain()
    assert (found.count, found.drain().count) == (0, 0)
    table = RowTable(rows, known, words, 0, in_order).table(compact)
    if in_order:
        wanted.sort(key=lambda row: (row["start_ns"], -int(str(row["dur_ns"]))))
    assert table.select(list(wanted[0])).to_pylist() == wanted
    for column in ("name", "shapes"):
        assert ("in no event" in table[column].chunk(0).dictionary.to_pylist()) != compact


def test_the_origin_of_the_clock_is_added() -> None:
    found, known, words = Gathering(), Origins(), {column: Vocabulary() for column in ARGUMENT_TEXTS}
    words["shapes"].numbers(["even", "odd"])
    found.add(stretch(0, 4, False, known))
    table = RowTable(found.drain(), known, words, 5, True).table(False)
    assert table["start_ns"].to_pylist() == [1004, 1004, 1005, 1005]


def test_a_column_that_begins_late_is_null_before() -> None:
    found, origin = Gathering(), np.zeros(2, np.int32)
    found.add(Rows(2, origin, {"start_ns": np.array([1, 2])}, {}, None))
    late = {"start_ns": np.array([3]), "stream": np.array([9])}
    found.add(Rows(1, origin[:1], late, {"shapes": np.array([0], np.int32)}, None))
    rows = found.drain()
    assert rows.integers["stream"].tolist() == [NULL, NULL, 9]
    assert rows.texts["shapes"].tolist() == [-1, -1, 0]
    assert rows.args is None


def test_a_table_without_rows() -> None:
    words = {column: Vocabulary() for column in ARGUMENT_TEXTS}
    assert RowTable(Gathering().drain(), Origins(), words, 0, True).table(True).num_rows == 0
