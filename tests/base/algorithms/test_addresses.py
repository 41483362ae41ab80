"""Tests of the memory for large columns, and of the reordering of texts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from perfkit_core.base.algorithms import addresses, arrays
from perfkit_core.base.algorithms.addresses import reordered
from perfkit_core.base.algorithms.arrays import BLOCK, Codes, joined, spread, to_codes, to_int64, valid
from perfkit_core.trace.assembly import draft
from perfkit_core.trace.assembly.draft import texts_taken


@pytest.mark.parametrize("count", [0, 5, arrays.SMALL_BYTES // 4 + 1, 3 * arrays.SMALL_BYTES])
def test_columns_are_as_long_as_asked_for(count: int) -> None:
    cells = arrays.allocate(count, np.int32)
    assert (cells.shape, cells.dtype, cells.flags.writeable) == ((count,), np.int32, True)
    cells[:] = np.arange(count)
    assert cells[-1:].tolist() == [count - 1] * bool(count)


@pytest.mark.parametrize("count", [0, 5, 3 * arrays.SMALL_BYTES])
def test_a_filled_column_holds_its_value_throughout(count: int) -> None:
    assert (arrays.filled(count, -1) == np.full(count, -1)).all()
    assert arrays.filled(count, 7, np.int32).dtype == np.int32


@pytest.mark.parametrize("count", [0, 1, BLOCK, BLOCK + 1, 3 * BLOCK - 1])
@pytest.mark.parametrize("kind", [np.bool_, np.int8, np.int64, object])
def test_cells_of_a_table_are_spread_over_all_rows(count: int, kind: type) -> None:
    table = np.arange(5).astype(kind)
    numbers = np.random.default_rng(3).integers(-5, 5, count).astype(np.int32)
    found = spread(table, numbers)
    assert found.dtype == table.dtype
    assert found.tolist() == table[numbers].tolist()


@pytest.mark.parametrize("count", [1, 3 * BLOCK])
@pytest.mark.parametrize("items", [[], [1], [1, 2, 3]])
def test_items_that_are_not_as_many_as_the_values_are_refused(count: int, items: list[int]) -> None:
    codes = Codes(np.zeros(count, np.int32), ["a", "b"])
    with pytest.raises(ValueError, match="items for 2 values"):
        codes.lookup(np.array(items, np.int64), -1)


def test_too_large_an_allocation_raises_memory_error() -> None:
    with pytest.raises(MemoryError, match="no memory for"):
        arrays.allocate(1 << 60, np.uint8)


def test_texts_in_another_order() -> None:
    known = ["", "é" * 40, None, "a", None, "last"] * 7
    order = np.random.default_rng(1).permutation(len(known))
    texts = pa.array(known, pa.string())
    assert reordered(texts, order).to_pylist() == [known[row] for row in order]
    part, few = texts.slice(5, 9), np.arange(9)[::-1].copy()
    assert reordered(part, few).to_pylist() == known[5:14][::-1]
    assert reordered(pa.array([None, None], pa.string()), np.array([1, 0])).to_pylist() == [None, None]


def test_replaced_texts_in_another_order() -> None:
    texts = pa.array(["gone", None, "é" * 9, "d"], pa.string())
    assert reordered(texts, np.array([3, 1, 0]), {1: "more", 0: None, 2: "?"}).to_pylist() == ["d", "more", None]
    assert reordered(texts.slice(1), np.array([2, 1, 0]), {0: "more"}).to_pylist() == ["d", "é" * 9, "more"]
    assert (
        reordered(texts.slice(2), np.array([1, 0]), {0: ""}).nbytes < 20
    )  # no memory is allocated for rows that are not requested


@pytest.mark.parametrize("count", [20, 70_000])
def test_replaced_texts_of_a_column(count: int) -> None:
    known = [None if row % 7 == 0 else str(row) for row in range(count)]
    instead = {row: None if row % 2 else f"other {row}" for row in range(0, count, 5)}
    order, whole = np.random.default_rng(4).permutation(count), pa.array(known, pa.string())
    wanted = [instead.get(row, known[row]) for row in range(count)]
    for column in (pa.chunked_array([whole]), pa.chunked_array([whole.slice(0, 9), whole.slice(9)])):
        assert texts_taken(column, order, instead).to_pylist() == [wanted[row] for row in order.tolist()]
        assert texts_taken(column, None, instead).to_pylist() == wanted


def test_texts_that_exceed_one_array_are_chunked(monkeypatch: pytest.MonkeyPatch) -> None:
    """This includes texts that are too long only because of the replacements."""
    monkeypatch.setattr(draft, "OFFSETS_END", 600_000)
    monkeypatch.setattr(draft, "_SLICE", 1000)
    column, order = pa.chunked_array([["abc"] * 70_000]), np.arange(70_000)[::-1].copy()
    assert texts_taken(column, order).num_chunks == 1
    found = texts_taken(column, order, dict.fromkeys(range(100), "x" * 1500))
    assert found.to_pylist() == ["abc"] * 69_900 + ["x" * 1500] * 100
    assert found.num_chunks == 70


def test_more_text_than_an_array_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "OFFSETS_END", 5)
    assert reordered(pa.array(["abc", "de"]), np.array([1, 0])).to_pylist() == ["de", "abc"]
    with pytest.raises(ValueError, match="6 bytes of text exceed the limit of 5 for one array"):
        reordered(pa.array(["abc", "def"]), np.array([1, 0]))


def test_a_column_of_one_piece_is_joined_without_a_copy() -> None:
    full = pa.array(["a", None, "b"]).dictionary_encode()
    other = pa.array(["c", "b"]).dictionary_encode()
    column = pa.chunked_array([other.slice(0, 0), full, full.slice(0, 0)])
    assert joined(column).indices.buffers()[1].address == full.indices.buffers()[1].address
    assert joined(pa.chunked_array([other, full.slice(0, 0), full])).to_pylist() == ["c", "b", "a", None, "b"]
    assert joined(pa.chunked_array([], full.type)).to_pylist() == []
    assert joined(pa.chunked_array([full.slice(0, 0)] * 2)).to_pylist() == []


@pytest.mark.parametrize("values", [[], [1, 2], [None, 2, None, 4], [None] * 20, [*range(20), None]])
def test_mask_of_values_that_are_not_null(values: list[int | None]) -> None:
    whole = pa.array(values, pa.int64())
    for column in (whole, *(whole.slice(first, 9) for first in range(12)), pa.nulls(len(values))):
        assert valid(column).tolist() == column.is_valid().to_pylist()


def test_long_columns_of_texts_take_the_compiled_way_to_the_same() -> None:
    texts = pa.array([None if row % 7 == 0 else str(row) for row in range(70_000)], pa.string())
    order = np.random.default_rng(2).permutation(len(texts))
    for column in (pa.chunked_array([texts]), pa.chunked_array([texts.slice(0, 9), texts.slice(9)])):
        assert texts_taken(column, order).combine_chunks().equals(texts.take(pa.array(order)))


def test_nulls_that_hold_the_missing_number_are_not_copied() -> None:
    cells = np.array([5, -1, 7, -1], np.int64)
    bits = pa.py_buffer(np.packbits(np.array([1, 0, 1, 1], np.bool_), bitorder="little"))
    column = pa.Array.from_buffers(pa.int64(), 4, [bits, pa.py_buffer(cells)])
    assert np.shares_memory(to_int64([column], 4, -1), cells)
    assert to_int64([column], 4, -2).tolist() == [5, -2, 7, -1]
    assert to_int64([column.slice(1)], 3, -1).tolist() == [-1, 7, -1]
    other = pa.array([5, None, 7], pa.int64())
    assert to_int64([other], 3, -1).tolist() == [5, -1, 7]
    assert to_codes([pa.array(["a", None, "b"]).dictionary_encode()], 3)[0].tolist() == [0, -1, 1]
