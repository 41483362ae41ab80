"""Memory events of a trace, the memory levels after each event, the allocated blocks, and the events of each step.

A *pool* is the memory of one device as seen by one process. Totals and addresses are comparable only within a pool. The
events of a pool are sorted by time; events at the same time keep their recorded order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from perfkit_core.base.algorithms import groupby
from perfkit_core.base.algorithms.arrays import BoolArray, IntArray
from perfkit_core.base.language.messages import Text, message
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.meta import ALL_THREADS, PROFILE_MEMORY
from perfkit_core.trace.model.schema import MEMORY, STATE
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.select import selected
from perfkit_core.views.steps.step_rows import step_rows

MISSING: Final = int(np.iinfo(np.int64).min)
"""Marks an unknown number."""
NEVER: Final = int(np.iinfo(np.int64).max)
"""End of a block that is alive at the end of the recording."""
UNSELECTED: Final = -2
"""Stands for the position of an event if no event is selected. The position before the first event is -1."""
RESERVE: Final = "Reserved"
"""Prefix of the categories of memory events that change the allocator's reserve."""
RESERVED_ARGUMENTS: Final = ("Total Reserved", "current_reserved")
NOT_RECORDED: Final = message(
    "no memory events were recorded: pass profile_memory=True to the profiler (record --memory)"
)


@dataclass(frozen=True, slots=True)
class MemoryEvents:
    """Memory events of known size, sorted by pool and time. Arrays have shape (events,) unless stated otherwise."""

    row: IntArray  # row in the event table
    pool: IntArray  # index of the pool
    change: IntArray  # bytes, negative for a free
    reserve: BoolArray  # whether the allocator's reserve changed
    pool_rank: IntArray  # rank of each pool, -1 if unknown, shape (pools,)
    pool_device: IntArray  # device of each pool as a code of the column `device`, shape (pools,)

    def first(self) -> IntArray:
        return np.searchsorted(self.pool, np.arange(len(self.pool_rank)))


@once
def memory_events(trace: Trace) -> MemoryEvents:
    change = trace.ints("bytes", MISSING)
    row = np.flatnonzero(trace.rows("kind", MEMORY) & (change != MISSING))
    device = trace.codes("device").codes[row].astype(np.int64)
    pool, first = groupby.sorted_codes([trace.ints("rank")[row], trace.ints("pid")[row], device], len(row))
    order = groupby.stable_order(pool, len(first))
    category = trace.codes("category")
    is_reserve = np.array([value.startswith(RESERVE) for value in category.values], np.bool_)
    rows = row[order]
    reserve = category.lookup(is_reserve, False)[rows]
    return MemoryEvents(rows, pool[order], change[rows], reserve, trace.ints("rank")[row[first]], device[first])


@once
def states(trace: Trace) -> BoolArray:
    """Return the mask of the pools without a history, whose events state what is allocated at the end."""
    events = memory_events(trace)
    mask = np.zeros(len(events.pool_rank), np.bool_)
    mask[events.pool[trace.codes("category").rows(STATE)[events.row]]] = True
    return mask


def counted_bytes(events: MemoryEvents) -> IntArray:
    """Return by how many bytes each event changes the allocated memory (0 if only reserved memory changes)."""
    return np.where(events.reserve, 0, events.change)


def arguments(trace: Trace, rows: IntArray, keys: Sequence[Sequence[str]]) -> list[IntArray]:
    """Return the integer values of recorded arguments, as one array of shape (len(rows),) per argument. Each item of
    ``keys`` lists the possible names of one argument. The value is MISSING for rows without the argument."""
    if not len(rows):  # avoid take(), which would concatenate all chunks of the column
        return [np.empty(0, np.int64) for _ in keys]
    texts = trace.pick("args", rows)
    result = []
    for names in keys:
        numbers: IntArray = np.full(len(texts), MISSING)
        if any(pc.any(pc.match_substring(texts, name)).as_py() for name in names):
            pattern = f'"(?:{"|".join(names)})" *: *(?P<number>-?[0-9]{{1,18}})'
            values = pc.struct_field(pc.extract_regex(texts, pattern), "number").cast("int64")
            numbers = np.asarray(pc.fill_null(values, MISSING).to_numpy(), np.int64)
        result.append(numbers)
    return result


def has_events(trace: Trace) -> bool:
    return bool(len(memory_events(trace).row))


def explain_empty(trace: Trace) -> Text:
    if trace.rows("kind", MEMORY).any():
        return message("the memory events have no sizes")
    options = trace.meta.options
    if not options.get(PROFILE_MEMORY):
        return NOT_RECORDED
    if options.get(ALL_THREADS):
        return message(
            "no memory events were recorded, because the profiler records none with profile_all_threads=True: omit "
            "this option"
        )
    return message(
        "no memory events were recorded, although profile_memory=True was passed: the profiler records none with "
        "profile_all_threads=True, or nothing was allocated"
    )


def pool_columns(trace: Trace, events: MemoryEvents, pool: IntArray) -> dict[str, object]:
    """Return the columns ``rank`` (NA if unknown) and ``device`` of the pools."""
    rank, device = events.pool_rank[pool], events.pool_device[pool]
    names = pd.Index([*trace.codes("device").values, None], dtype=object)
    return {"rank": pd.Series(pd.arrays.IntegerArray(rank, rank < 0)), "device": names.take(device)}


def pool_table(trace: Trace, events: MemoryEvents, pool: IntArray, columns: Mapping[str, IntArray]) -> pd.DataFrame:
    """Return one row per memory pool in ``pool``, with rank, device and the given ``columns``. MISSING becomes NA."""
    table = pool_columns(trace, events, pool)
    for name, values in columns.items():
        unknown = values == MISSING
        table[name] = pd.Series(pd.arrays.IntegerArray(np.where(unknown, 0, values), unknown))
    return pd.DataFrame(table)


@dataclass(frozen=True, slots=True)
class Levels:
    """Memory of a pool in bytes after each memory event, shape (events,). MISSING stands for an unrecorded number."""

    growth: IntArray  # sum of the changes since the recording began
    allocated: IntArray  # recorded total
    unexplained: IntArray  # change of the total less the event's own change; not 0 if events were lost or out of order
    # In pools with :func:`restarts`, ``allocated`` is corrected: each cycle begins with the blocks that it or a later
    # cycle frees, because the frees between the cycles are in no total.
    reserved: IntArray
    start: IntArray  # total before the first event, shape (pools,)
    # In pools of :func:`states`, ``allocated`` is the level at the end, and the other levels are MISSING.

    def best(self, at: IntArray) -> IntArray:
        """Return the recorded total after each of the events ``at``; without totals, the growth since the beginning."""
        return np.where(self.allocated[at] == MISSING, self.growth[at], self.allocated[at])


@once
def levels(trace: Trace) -> Levels:
    events = memory_events(trace)
    pool, change, first, pools = events.pool, counted_bytes(events), events.first(), len(events.pool_rank)
    cumulated = np.cumsum(change)
    growth = cumulated - (cumulated[first] - change[first])[pool] if len(change) else cumulated
    complete, total = _totals(trace)
    start = np.where(complete, total[first] - change[first], MISSING) if len(change) else total
    pool_blocks, begins = blocks(trace), restarts(trace)
    for begin, following in pairwise([*begins.tolist(), len(total)]):
        end = min(following, int(np.searchsorted(pool, pool[begin], side="right")))
        alive = pool_blocks.freed & (pool_blocks.allocation < begin) & (begin <= pool_blocks.end)
        alive &= pool[pool_blocks.allocation] == pool[begin]
        total[begin:end] = change[pool_blocks.allocation[alive]].sum() + np.cumsum(change[begin:end])
    before = np.append(0, total[:-1]) if len(total) else total
    before[first] = start
    unexplained = np.where(complete[pool], total - before - change, MISSING)
    # if the reserve is 0 in every event of a pool, the allocator is taken not to report its reserve
    reserved = arguments(trace, events.row, [RESERVED_ARGUMENTS])[0]
    state = states(trace)
    if state.any():
        start, of_state, last = np.where(state, MISSING, start), state[pool], np.append(first[1:], len(pool)) - 1
        total[of_state] = total[last[pool[of_state]]]
        growth[of_state] = unexplained[of_state] = MISSING
    measured = np.zeros(pools, np.bool_)
    measured[pool[(reserved != 0) & (reserved != MISSING)]] = True
    return Levels(growth, total, unexplained, np.where(measured[pool], reserved, MISSING), start)


def _totals(trace: Trace) -> tuple[BoolArray, IntArray]:
    """Return whether all events of each pool have a recorded total, and the totals, MISSING in all other pools."""
    events = memory_events(trace)
    total, complete = trace.ints("total_bytes", MISSING)[events.row], np.ones(len(events.pool_rank), np.bool_)
    complete[events.pool[total == MISSING]] = False
    return complete, np.where(complete[events.pool], total, MISSING)


@once
def restarts(trace: Trace) -> IntArray:
    """Return the positions of the first events of all cycles but the first, in pools whose recorded total is the sum of
    the recorded events (torch's total of the CPU). Such a total misses what was freed between two cycles, so it grows
    with every cycle. The total of an allocator, in contrast, begins with what was allocated before the recording."""
    events, (complete, total), ends = memory_events(trace), _totals(trace), step_ends(trace)
    change, counted = counted_bytes(events), complete.copy()
    for number, (begin, end) in enumerate(pairwise([*events.first().tolist(), len(total)])):
        counted[number] &= bool((total[begin:end] == np.cumsum(change[begin:end])).all())
    if not len(ends.step):
        return ends.step
    begins, first_step = ends.run_begin(), np.searchsorted(ends.pool, ends.pool)
    later = counted[ends.pool] & (begins != begins[first_step]) & (begins < len(total))
    return np.unique(begins[later])


def before(level: Levels, events: MemoryEvents, position: int) -> int:
    """Return the allocated bytes before the event at ``position``."""
    moved = int(level.unexplained[position])
    change = 0 if events.reserve[position] else int(events.change[position])
    return int(level.best(np.array([position]))[0]) - change - (0 if moved == MISSING else moved)


def peak(level: Levels, events: MemoryEvents, at: IntArray) -> tuple[int, int]:
    """Return the position of the first event after which the memory of a pool is highest, and that memory in bytes.
    ``at`` has ascending positions of events in the pool. If the memory before ``at[0]`` was at least as high, return
    ``at[0] - 1`` and that memory."""
    start, best = before(level, events, int(at[0])), level.best(at)
    top = int(best.argmax())
    return (int(at[top]), int(best[top])) if best[top] > start else (int(at[0]) - 1, start)


def peaks(trace: Trace, request: ViewRequest) -> tuple[IntArray, IntArray]:
    """Return the event position of each pool's peak (UNSELECTED if no event is selected), and the total at the peak
    (MISSING if no totals were recorded). Both have shape (pools,). The request's pattern is not used. Without a
    history, the position is that of the end, and the total is MISSING."""
    events, level = memory_events(trace), levels(trace)
    at = np.flatnonzero(selected(trace, replace(request, pattern=None))[events.row])
    position, total = np.full(len(events.pool_rank), UNSELECTED), np.full(len(events.pool_rank), MISSING)
    pools = np.unique(events.pool[at])
    for pool, mine in zip(pools, np.split(at, np.searchsorted(events.pool[at], pools[1:])), strict=False):
        position[pool], best = peak(level, events, mine)
        total[pool] = best if level.start[pool] != MISSING else MISSING
    without, last = states(trace) & (position != UNSELECTED), np.append(events.first()[1:], len(events.pool)) - 1
    position[without] = last[without]
    return position, total


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks that were allocated in the recording. All arrays contain positions of memory events.

    A block lives from its allocation to the next event at its address in the same pool. If this event is another
    allocation, the free was not recorded, and the block is taken to end there. A block whose free was not recorded also
    ends where a total restarts (:func:`restarts`). A free without a preceding allocation frees a block from before the
    recording. Changes of the allocator's reserve are not blocks.
    """

    allocation: IntArray  # shape (blocks,)
    end: IntArray  # NEVER if the block is alive at the end of the recording, shape (blocks,)
    freed: BoolArray  # whether a recorded free ends the block, shape (blocks,)
    repeated: IntArray  # allocations at an address in use
    unmatched: IntArray  # frees of blocks from before the recording
    resized: IntArray  # frees whose size differs from the allocation
    placeless: IntArray  # events without a recorded address

    def alive(self, position: IntArray) -> BoolArray:
        """Return the mask of the blocks that are alive after the event at ``position``, shape (blocks,)."""
        return np.asarray((self.allocation <= position) & (position < self.end), np.bool_)


@once
def blocks(trace: Trace) -> Blocks:
    """Return the blocks of all pools, sorted by allocation."""
    events = memory_events(trace)
    address = trace.ints("address", MISSING)[events.row]
    placed = ~events.reserve & (address != MISSING)
    # Sort the events by address and time, so that the events of a block are neighbours.
    at = np.flatnonzero(placed)
    slot, slots = groupby.distinct([events.pool[at], address[at]], len(at))
    order = groupby.stable_order(slot, len(slots))
    at, slot = at[order], slot[order]
    first, last = slot != _before(slot, -1), slot != _after(slot, -1)
    change, frees = events.change[at], events.change[at] < 0
    in_use = ~first & ~_before(frees, True)  # a block lies at the address of the event
    freed = ~last & _after(frees, False)  # the next event at the address is a free
    end = np.where(last, NEVER, _after(at, NEVER))
    end = np.where(freed, end, np.minimum(end, _next_restart(trace, events, at)))
    allocations = np.flatnonzero(~frees)
    allocations = allocations[np.argsort(at[allocations])]
    return Blocks(
        allocation=at[allocations],
        end=end[allocations],
        freed=freed[allocations],
        repeated=at[~frees & in_use],
        unmatched=at[frees & ~in_use],
        resized=at[frees & in_use & (change + _before(change, 0) != 0)],
        placeless=np.flatnonzero(~placed & ~events.reserve),
    )


def _before(values: Any, missing: Any) -> Any:
    """Return the value of the item before each item. Before the first item, it is ``missing``."""
    return np.append(missing, values)[:-1].astype(values.dtype)


def _after(values: Any, missing: Any) -> Any:
    return np.append(values[1:], missing)[: len(values)].astype(values.dtype)


def _next_restart(trace: Trace, events: MemoryEvents, position: IntArray) -> IntArray:
    """Return the position of the next restart of the total in the pool of each event, NEVER if there is none."""
    begins = np.append(restarts(trace), NEVER)
    following = begins[np.searchsorted(begins, position, side="right")]
    pool = np.append(events.pool, -1)[np.minimum(following, len(events.pool))]
    return np.where(pool == events.pool[position], following, NEVER)


def has_blocks(trace: Trace) -> bool:
    return bool(len(blocks(trace).allocation))


def has_peak(trace: Trace) -> bool:
    """Return whether blocks were allocated in a recorded history."""
    return not states(trace)[memory_events(trace).pool[blocks(trace).allocation]].all()


def explain_no_blocks(trace: Trace) -> Text:
    if not has_events(trace):
        return explain_empty(trace)
    if not has_blocks(trace):
        return message("the memory events have no addresses, so allocations cannot be matched with frees")
    if not has_peak(trace):
        return message("the history of the memory was not recorded, so the peak is unknown")
    return message("all memory that was allocated in the recording was freed before the peak")


@dataclass(frozen=True, slots=True)
class StepEnds:
    """The steps of each memory pool. All arrays have one item per combination of a pool and a step of the pool's rank.

    A *series* is a group of steps with consecutive numbers, such as one cycle of the profiler. Frees between two series
    are not recorded, so a block is followed only to the end of its series.
    """

    pool: IntArray
    step: IntArray  # row of the step in the event table
    first: IntArray  # position of the step's first memory event in the pool
    last: IntArray  # position of the last one; less than `first` if there are no events
    follower: IntArray  # index of the next step of the series, or -1
    run_last: IntArray  # index of the last step of the series

    def of(self, position: IntArray) -> IntArray:
        """Return the index of the step in which each memory event lies (-1 if none), shape (len(position),)."""
        row = np.searchsorted(self.last, position)
        in_range = row < len(self.last)
        inside = in_range & (np.append(self.first, NEVER)[row] <= position)
        return np.where(inside, row, -1)

    def run_begin(self) -> IntArray:
        """Return, for each step, the position of the first memory event in the series that contains the step."""
        starts = np.flatnonzero(np.append(True, self.follower[:-1] < 0)[: len(self.step)])
        return self.first[starts[np.searchsorted(starts, np.arange(len(self.step)), side="right") - 1]]


def step_ends(trace: Trace) -> StepEnds:
    events, steps, rank = memory_events(trace), step_rows(trace), trace.ints("rank")
    start, end = trace.ints("start_ns"), trace.end_ns
    pools, rows, firsts, lasts = [steps[:0]], [steps[:0]], [steps[:0]], [steps[:0]]
    for index, pool_rank in enumerate(events.pool_rank):
        mine = steps[rank[steps] == pool_rank]
        begin, stop = np.searchsorted(events.pool, [index, index + 1])
        time = start[events.row[begin:stop]]
        pools.append(np.full(len(mine), index))
        rows.append(mine)
        firsts.append(begin + np.searchsorted(time, start[mine]))
        lasts.append(begin + np.searchsorted(time, end[mine]) - 1)
    pool, step = np.concatenate(pools), np.concatenate(rows)
    number, row = trace.ints("step")[step], np.arange(len(step))
    follows = np.append((pool[1:] == pool[:-1]) & (number[1:] == number[:-1] + 1), False)[: len(step)]
    run_ends = np.flatnonzero(~follows)  # includes the last step
    run_last = np.asarray(run_ends[np.searchsorted(run_ends, row)], np.int64)
    return StepEnds(pool, step, np.concatenate(firsts), np.concatenate(lasts), np.where(follows, row + 1, -1), run_last)
