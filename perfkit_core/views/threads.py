"""On which thread is an event?"""

from __future__ import annotations

from dataclasses import dataclass

from perfkit_core.algorithms import groupby
from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.model.trace import Trace, once

IDENTITY = ("rank", "pid", "tid")


@dataclass(frozen=True, slots=True)
class Threads:
    """``code``: number of the thread of each event, shape (rows,); ``first``: its first row, shape (threads,). Threads
    are in the order of rank, process and thread; what is on none (device work) has numbers, too."""

    code: IntArray
    first: IntArray

    def __len__(self) -> int:
        return len(self.first)


@once
def threads(trace: Trace) -> Threads:
    """The threads of a trace."""
    return Threads(*groupby.sorted_codes([trace.ints(name) for name in IDENTITY], len(trace)))
