"""The dependency graph of a recording: nodes that take time, edges that make them wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from perfkit_core.algorithms.arrays import BoolArray, IntArray

CHAIN: Final = 0
"""What a thread does next."""
LAUNCH: Final = 1
"""Device work after the call that launched it."""
STREAM: Final = 2
"""Device work after what was queued before it."""
EVENT: Final = 3
"""Device work after work of another stream."""
WAIT: Final = 4
"""A thread that waits for device work."""
QUEUE: Final = 5
"""A thread that waits for room in the queue of a device."""
HANDOFF: Final = 6
"""A thread that waits for another thread."""
MEETING: Final = 7
"""Ranks that wait for each other in a collective."""
BATCH: Final = 8
"""A thread that waits for a batch that others make."""
CAUSES: Final = ("chain", "launch", "stream", "event", "wait", "queue", "handoff", "meeting", "batch")


@dataclass(frozen=True, slots=True)
class Edges:
    """``dst`` starts no earlier than ``lag_ns`` after the end (or the start, where ``from_start``) of ``src``; arrays
    of shape (edges,). ``owner`` is the row of the event that causes the edge (-1: none): who removes the event removes
    it."""

    src: IntArray
    dst: IntArray
    lag_ns: IntArray
    from_start: BoolArray
    cause: npt.NDArray[np.int8]
    owner: IntArray

    def __len__(self) -> int:
        return len(self.src)

    def only(self, kept: BoolArray) -> Edges:
        """Those for which ``kept`` is true."""
        return Edges(*(getattr(self, name)[kept] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes as arrays of shape (nodes,), and edges between them.

    ``dur_ns`` is what a node takes once it has started, ``row`` the event that the time belongs to (-1: none),
    ``lane`` the thread or stream it is on, ``start_ns`` when it was recorded to start, which only counts for nodes
    that wait for nothing. Lanes below ``threads`` are threads of the host.
    """

    dur_ns: IntArray
    row: IntArray
    lane: IntArray
    start_ns: IntArray
    threads: int
    edges: Edges

    def __len__(self) -> int:
        return len(self.dur_ns)

    @property
    def on_host(self) -> BoolArray:
        """True for nodes of host threads."""
        return self.lane < self.threads

    def with_durations(self, dur_ns: IntArray) -> Graph:
        """With other times of the nodes."""
        return replace(self, dur_ns=dur_ns)


def edges(
    cause: int, src: IntArray, dst: IntArray, lag_ns: IntArray | int = 0, owner: IntArray | int = -1,
    from_start: bool = False,
) -> Edges:  # fmt: skip
    """Edges of one cause."""
    count = len(src)
    return Edges(
        src.astype(np.int64, copy=False),
        dst.astype(np.int64, copy=False),
        np.broadcast_to(np.asarray(lag_ns, np.int64), count).copy(),
        np.full(count, from_start),
        np.full(count, cause, np.int8),
        np.broadcast_to(np.asarray(owner, np.int64), count).copy(),
    )


def all_edges(parts: Sequence[Edges]) -> Edges:
    """Several sets of edges as one."""
    nothing = edges(CHAIN, np.empty(0, np.int64), np.empty(0, np.int64))
    return Edges(*(np.concatenate([getattr(part, name) for part in (nothing, *parts)]) for name in Edges.__slots__))
