"""Memory for large columns, and texts in another order."""

from __future__ import annotations

import mmap

import numpy as np
import pyarrow as pa
import pytest

from perfkit_core import memory
from perfkit_core.arrays import to_codes, to_int64
from perfkit_core.assembly.ordering import texts_taken
from perfkit_core.assembly.text_order import reordered


@pytest.mark.parametrize("count", [0, 5, memory.SMALL_BYTES // 4 + 1, 3 * memory.SMALL_BYTES])
def test_columns_are_as_long_as_asked_for(count: int) -> None:
    cells = memory.column(count, np.int32)
    assert (cells.shape, cells.dtype, cells.flags.writeable) == ((count,), np.int32, True)
    cells[:] = np.arange(count)
    assert cells[-1:].tolist() == [count - 1] * bool(count)


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="this system has no large pages to ask for")
@pytest.mark.parametrize(("limit_s", "asks_again"), [(1e9, True), (0.0, False)])
def test_large_pages_that_were_slow_are_not_asked_for_again(
    limit_s: float, asks_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_AT_HAND_S", limit_s)
    monkeypatch.setattr(memory._LargePages, "at_hand", True)
    memory.column(8 << 20, np.uint8)[:] = 1
    assert memory._LargePages.at_hand == asks_again


class _Refusing(mmap.mmap):
    """As of a kernel without large pages."""

    def madvise(self, *_: int) -> None:
        raise OSError(22, "Invalid argument")


def test_a_kernel_without_large_pages_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory._LargePages, "at_hand", True)
    monkeypatch.setattr(mmap, "mmap", _Refusing)
    assert memory.column(8 << 20, np.uint8).sum() == 0
    assert not memory._LargePages.at_hand


def test_texts_in_another_order() -> None:
    known = ["", "é" * 40, None, "a", None, "last"] * 7
    order = np.random.default_rng(1).permutation(len(known))
    texts = pa.array(known, pa.string())
    assert reordered(texts, order).to_pylist() == [known[row] for row in order]
    part, few = texts.slice(5, 9), np.arange(9)[::-1].copy()
    assert reordered(part, few).to_pylist() == known[5:14][::-1]
    assert reordered(pa.array([None, None], pa.string()), np.array([1, 0])).to_pylist() == [None, None]


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
