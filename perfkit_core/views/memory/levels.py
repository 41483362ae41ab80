"""How much memory was allocated and reserved after each event?

The recorded running total says how much is allocated. It may start above zero (what was allocated before the recording)
and may change by more than the events say (some were lost, or two threads recorded theirs in another order).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.model.trace import Trace, once
from perfkit_core.views.memory.events import MISSING, MemoryEvents, argument, counted_bytes, memory_events

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
