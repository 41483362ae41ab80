"""Which memory events were recorded, on which process's device, in which order, and for whom?

A *pool* is the memory of one device as one process sees it: running totals and addresses mean something only within it.
Events of a pool are in the order of their times, those of the same time as they were recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.algorithms import groupby
from perfkit_core.algorithms.arrays import BoolArray, Codes, IntArray
from perfkit_core.language.messages import Text, message
from perfkit_core.model.schema import MEMORY
from perfkit_core.model.trace import Trace, once

MISSING: Final = int(np.iinfo(np.int64).min)
"""Stands for an unknown number of bytes: no allocation can have it."""
RESERVE: Final = "Reserved"
"""Categories of memory events that begin so move the reserve of the allocator, not what is allocated from it."""
NOT_RECORDED: Final = message(
    "no memory events were recorded: pass profile_memory=True to the profiler (record --memory)"
)


@dataclass(frozen=True, slots=True)
class MemoryEvents:
    """Memory events whose size is known, sorted by pool and time; arrays of shape (events,) unless said otherwise.

    ``row``: row in the event table; ``change``: bytes, negative when freed; ``reserve``: True where the allocator's own
    reserve changed. ``pool_rank`` (-1: unknown) and ``pool_device`` (code of the device column): shape (pools,).
    """

    row: IntArray
    pool: IntArray
    change: IntArray
    reserve: BoolArray
    pool_rank: IntArray
    pool_device: IntArray

    def first(self) -> IntArray:
        """Position of the first event of each pool, shape (pools,)."""
        return np.searchsorted(self.pool, np.arange(len(self.pool_rank)))

    def end(self) -> IntArray:
        """Position after the last event of each pool, shape (pools,)."""
        return np.searchsorted(self.pool, np.arange(len(self.pool_rank)), side="right")


@once
def memory_events(trace: Trace) -> MemoryEvents:
    """The memory events of the trace."""
    change = trace.ints("bytes", MISSING)
    row = np.flatnonzero(trace.rows("kind", MEMORY) & (change != MISSING))
    device = trace.codes("device").codes[row].astype(np.int64)
    pool, first = groupby.sorted_codes([trace.ints("rank")[row], trace.ints("pid")[row], device], len(row))
    order = groupby.stable_order(pool, len(first))
    reserve = _is_reserve(trace.codes("category"))[row[order]]
    rows = row[order]
    return MemoryEvents(rows, pool[order], change[rows], reserve, trace.ints("rank")[row[first]], device[first])


def counted_bytes(found: MemoryEvents) -> IntArray:
    """By how much each event changes what is allocated: 0 for the allocator's own reserve, shape (events,)."""
    return np.where(found.reserve, 0, found.change)


def argument(trace: Trace, rows: IntArray, *keys: str) -> IntArray:
    """An integer among the other recorded arguments of some events, by the first key found; MISSING where there is
    none. Shape (len(rows),)."""
    return arguments(trace, rows, [keys])[0]


def arguments(trace: Trace, rows: IntArray, keys: Sequence[Sequence[str]]) -> list[IntArray]:
    """As :func:`argument`, several of them."""
    if not len(rows):  # to pick nothing from a column of several pieces would join them
        return [np.empty(0, np.int64) for _ in keys]
    texts = trace.pick("args", rows)
    return [_number(texts, some) for some in keys]


def _number(texts: pa.Array, keys: Sequence[str]) -> IntArray:
    if not any(pc.any(pc.match_substring(texts, key)).as_py() for key in keys):
        return np.full(len(texts), MISSING)
    pattern = f'"(?:{"|".join(keys)})" *: *(?P<number>-?[0-9]{{1,18}})'
    values = pc.struct_field(pc.extract_regex(texts, pattern), "number").cast(pa.int64())
    numbers: IntArray = np.asarray(pc.fill_null(values, MISSING).to_numpy(), np.int64)
    return numbers


def nullable(values: IntArray) -> pd.Series[int]:
    """MISSING as NA."""
    unknown = values == MISSING
    return pd.Series(pd.arrays.IntegerArray(np.where(unknown, 0, values), unknown))


def has_events(trace: Trace) -> bool:
    """Whether memory events were recorded, with their sizes."""
    return bool(len(memory_events(trace).row))


def explain_empty(trace: Trace) -> Text:
    """Why a table of memory has no rows."""
    return NOT_RECORDED if not trace.rows("kind", MEMORY).any() else message("the memory events have no sizes")


def pool_columns(trace: Trace, found: MemoryEvents, pool: IntArray) -> dict[str, object]:
    """Columns rank (NA: unknown) and device of some pools."""
    rank, device = found.pool_rank[pool], found.pool_device[pool]
    names = pd.Index([*trace.codes("device").values, None], dtype=object)
    return {"rank": nullable(np.where(rank < 0, MISSING, rank)), "device": names.take(device)}


def _is_reserve(category: Codes) -> BoolArray:
    spelled = np.array([value.startswith(RESERVE) for value in category.values], np.bool_)
    flags: BoolArray = category.lookup(spelled, False)
    return flags
