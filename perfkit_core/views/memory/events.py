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
from perfkit_core.views.steps.step_rows import step_rows

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


RESERVED_ARGUMENTS: Final = ("Total Reserved", "current_reserved")


@dataclass(frozen=True, slots=True)
class Levels:
    """After each event, shape (events,): ``growth``, the sum of the changes since the recording began; ``allocated``,
    the recorded total; ``unexplained``, by how much that total moved without an event; ``reserved``. MISSING where the
    pool does not tell. ``start``: total before the first event, shape (pools,)."""

    growth: IntArray
    allocated: IntArray
    unexplained: IntArray
    reserved: IntArray
    start: IntArray

    def best(self, at: IntArray) -> IntArray:
        """The total where it was recorded, else the growth, after the events at some positions."""
        return np.where(self.allocated[at] == MISSING, self.growth[at], self.allocated[at])


@once
def levels(trace: Trace) -> Levels:
    """The levels after each of the memory events."""
    found = memory_events(trace)
    change = counted_bytes(found)
    first = found.first()
    cumulated = np.cumsum(change)
    growth = cumulated - (cumulated[first] - change[first])[found.pool] if len(change) else cumulated
    total = trace.ints("total_bytes", MISSING)[found.row]
    told = _all_of_pool(found, total != MISSING)
    total = np.where(told[found.pool], total, MISSING)
    start = np.where(told, total[first] - change[first], MISSING) if len(change) else total
    before = np.append(0, total[:-1]) if len(total) else total
    before[first] = start
    unexplained = np.where(told[found.pool], total - before - change, MISSING)
    return Levels(growth, total, unexplained, _reserved(trace, found), start)


def before(level: Levels, found: MemoryEvents, position: int) -> int:
    """What was allocated before the event at ``position``."""
    moved = int(level.unexplained[position])
    change = 0 if found.reserve[position] else int(found.change[position])
    return int(level.best(np.array([position]))[0]) - change - (0 if moved == MISSING else moved)


def peak(level: Levels, found: MemoryEvents, at: IntArray) -> tuple[int, int]:
    """Position of the event after which most was allocated, the first of several, and how much that was.

    ``at``: ascending positions in one pool. The position before the first of them when it was never more than then.
    """
    start, best = before(level, found, int(at[0])), level.best(at)
    top = int(best.argmax())
    return (int(at[top]), int(best[top])) if best[top] > start else (int(at[0]) - 1, start)


def _reserved(trace: Trace, found: MemoryEvents) -> IntArray:
    """An allocator that keeps no reserve writes 0 in every event: unknown, as nothing was measured."""
    reserved = argument(trace, found.row, *RESERVED_ARGUMENTS)
    used = np.zeros(len(found.pool_rank), np.bool_)
    used[found.pool[(reserved != 0) & (reserved != MISSING)]] = True
    return np.where(used[found.pool], reserved, MISSING)


def _all_of_pool(found: MemoryEvents, true: BoolArray) -> BoolArray:
    every = np.ones(len(found.pool_rank), np.bool_)
    every[found.pool[~true]] = False
    return every


NEVER: Final = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Positions among the memory events. ``allocation`` and ``end`` (NEVER: alive at the end of the recording), shape
    (blocks,). ``repeated``: allocations at an address that was not known to be free; ``unmatched``: frees of what was
    not allocated in the recording; ``resized``: frees of another size than the block had; ``placeless``: without an
    address, so not matched at all."""

    allocation: IntArray
    end: IntArray
    repeated: IntArray
    unmatched: IntArray
    resized: IntArray
    placeless: IntArray

    def alive(self, position: IntArray) -> BoolArray:
        """True for blocks that are alive after the event at ``position`` (one for each block)."""
        return np.asarray((self.allocation <= position) & (position < self.end), np.bool_)


@once
def blocks(trace: Trace) -> Blocks:
    """The blocks of all pools, in the order of their allocation."""
    found = memory_events(trace)
    address = trace.ints("address", MISSING)[found.row]
    placed = ~found.reserve & (address != MISSING)
    at = np.flatnonzero(placed)
    place, first = groupby.distinct([found.pool[at], address[at]], len(at))
    order = groupby.stable_order(place, len(first))
    at, same = at[order], np.diff(place[order]) == 0
    after, before = np.append(same, False)[: len(at)], np.append(False, same)[: len(at)]
    frees = found.change[at] < 0
    following = np.append(at[1:], NEVER)[: len(at)]
    end = np.where(after, following, NEVER)
    opened = before & np.append(False, ~frees)[: len(at)]
    resized = opened & frees & (found.change[at] + np.append(0, found.change[at])[: len(at)] != 0)
    order = np.argsort(at[~frees])
    return Blocks(
        allocation=at[~frees][order],
        end=end[~frees][order],
        repeated=at[~frees & opened],
        unmatched=at[frees & ~opened],
        resized=at[resized],
        placeless=np.flatnonzero(~placed & ~found.reserve),
    )


def has_blocks(trace: Trace) -> bool:
    """Whether allocations were recorded that can be followed."""
    return bool(len(blocks(trace).allocation))


def explain_no_blocks(trace: Trace) -> Text:
    """Why a table of blocks has no rows."""
    found = memory_events(trace)
    if not len(found.row):
        return explain_empty(trace)
    if not has_blocks(trace):
        return message("the memory events have no addresses, so allocations cannot be matched with frees")
    return message("nothing that was allocated in the recording was alive then")


@dataclass(frozen=True, slots=True)
class StepEnds:
    """A row for each pool and step of its rank, in this order. ``pool``; ``step``: row of the step event; ``first`` and
    ``last``: positions of the first and last memory event of the pool in it (last < first: none); ``follower``: row of
    the next step of the run (-1: the step is the last of it); ``run_last``: row of the last step of the run. Shape
    (pools × steps,)."""

    pool: IntArray
    step: IntArray
    first: IntArray
    last: IntArray
    follower: IntArray
    run_last: IntArray

    def of(self, position: IntArray) -> IntArray:
        """The row here of the step in which each memory event lies (-1: none), shape of ``position``."""
        row = np.searchsorted(self.last, position)
        known = row < len(self.last)
        inside = known & (np.append(self.first, np.iinfo(np.int64).max)[row] <= position)
        return np.where(inside, row, -1)

    def run_begin(self) -> IntArray:
        """Position of the first event of the run of each row."""
        starts = np.flatnonzero(np.append(True, self.follower[:-1] < 0)[: len(self.step)])
        return self.first[starts[np.searchsorted(starts, np.arange(len(self.step)), side="right") - 1]]


def step_ends(trace: Trace, found: MemoryEvents) -> StepEnds:
    """The steps of each pool."""
    steps, rank = step_rows(trace), trace.ints("rank")
    mine = [steps[rank[steps] == one] for one in found.pool_rank]
    pool = np.repeat(np.arange(len(mine)), [len(rows) for rows in mine])
    step = np.concatenate(mine) if mine else steps[:0]
    bounds = [_bounds(trace, found, int(p), rows) for p, rows in enumerate(mine)]
    first, last = (np.concatenate(part) for part in zip(*bounds, strict=True)) if bounds else (step, step)
    number = trace.ints("step")[step]
    follows = np.append((pool[1:] == pool[:-1]) & (number[1:] == number[:-1] + 1), False)[: len(step)]
    row = np.arange(len(step))
    return StepEnds(pool, step, first, last, np.where(follows, row + 1, -1), _next_stop(~follows))


def _bounds(trace: Trace, found: MemoryEvents, pool: int, steps: IntArray) -> tuple[IntArray, IntArray]:
    begin, end = np.searchsorted(found.pool, [pool, pool + 1])
    time = trace.ints("start_ns")[found.row[begin:end]]
    first = begin + np.searchsorted(time, trace.ints("start_ns")[steps])
    last = begin + np.searchsorted(time, trace.end_ns[steps]) - 1
    return first, last


def _next_stop(stop: np.ndarray) -> IntArray:
    """The nearest row at or after each one where ``stop`` is true (it is in the last row)."""
    at = np.flatnonzero(stop)
    return np.asarray(at[np.searchsorted(at, np.arange(len(stop)))], np.int64)
