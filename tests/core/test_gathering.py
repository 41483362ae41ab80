"""Rows that come in stretches are the same rows in blocks, whatever columns each stretch has."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from perfkit_core.sources import gathering
from perfkit_core.sources.gathering import Gathering
from perfkit_core.sources.portion import NULL
from perfkit_core.sources.rows import TEXTS, Rows, table
from perfkit_core.sources.vocabulary import Vocabulary


def stretch(first: int, count: int, args: bool) -> Rows:
    """Every third one has a stream, every other one names."""
    start = np.arange(first, first + count, dtype=np.int64)
    integers = {"start_ns": start, "dur_ns": start * 2}
    if first % 3 == 0:
        integers["stream"] = start % 7
    texts = {"name": (start % 2).astype(np.int32)} if first % 2 == 0 else {}
    return Rows(count, integers, texts, pa.array([f"{i}" for i in start], pa.string()) if args else None)


@pytest.mark.parametrize(("least", "most"), [(1, 4), (4, 16), (1 << 14, 1 << 20)])
def test_blocks_hold_what_stretches_held(least: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "_FIRST", least)
    monkeypatch.setattr(gathering, "_LARGEST", most)
    sizes = [3, 5, 0, 1, 20, 2, 2, 7]
    firsts = np.cumsum([0, *sizes[:-1]]).tolist()
    parts = [stretch(first, size, args=size != 5) for first, size in zip(firsts, sizes, strict=True)]
    names = Vocabulary()
    names.numbers(["even", "odd"])
    words = {column: Vocabulary() for column in TEXTS} | {"name": names}
    found = Gathering()
    for part in parts:
        found.add(part)
    assert found.count == sum(sizes)
    blocks = found.taken()
    assert found.count == 0
    assert found.taken() == []
    whole, pieces = table(blocks, words), table([part for part in parts if part.count], words)
    assert whole.to_pylist() == pieces.to_pylist()
    assert [row["stream"] for row in whole.to_pylist()][:4] == [0, 1, 2, 3]


def test_a_block_is_not_larger_than_what_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "_FIRST", 4)
    found = Gathering()
    for first in range(0, 64, 4):
        found.add(stretch(first, 4, args=False))
    assert [block.count for block in found.taken()] == [4, 4, 8, 16, 32]


def test_a_column_that_begins_late_holds_nothing_before() -> None:
    found = Gathering()
    found.add(Rows(2, {"start_ns": np.array([1, 2])}, {}, None))
    found.add(Rows(1, {"start_ns": np.array([3]), "stream": np.array([9])}, {"name": np.array([0], np.int32)}, None))
    (block,) = found.taken()
    assert block.integers["stream"].tolist() == [NULL, NULL, 9]
    assert block.texts["name"].tolist() == [-1, -1, 0]
