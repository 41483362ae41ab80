"""Which blocks were allocated in the recording, and which event freed each?

A block lives from its allocation to the next event at its address in the same pool. When that is another allocation,
the free in between was not recorded, and the block ends there. A free without an allocation before it at its address
frees a block from before the recording. Events of the allocator's own reserve are no blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.algorithms import groupby
from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.language.messages import Text, message
from perfkit_core.model.trace import Trace, once
from perfkit_core.views.memory.events import MISSING, explain_empty, memory_events

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
