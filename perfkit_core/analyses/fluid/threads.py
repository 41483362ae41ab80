"""The host threads of a trace, numbered in the order in which they appear: ``thread0``, ``thread1``, …"""

from __future__ import annotations

import numpy as np

from perfkit_core import grouped
from perfkit_core.analyses.once import once
from perfkit_core.analyses.threads import IDENTITY, threads
from perfkit_core.schema import NESTED_KINDS
from perfkit_core.trace import IntArray, Trace


@once
def thread_numbers(trace: Trace) -> tuple[IntArray, IntArray]:
    """Number of the thread of each event (-1: no host event that occupies one), and the first row of each thread."""
    every = threads(trace)
    key = np.where(trace.host & trace.rows("kind", *NESTED_KINDS), every.code, -1)
    return grouped.by_appearance(key, len(every))


def described(trace: Trace, row: int) -> str:
    """The thread of an event in words: rank where there are several, number and name of the thread."""
    rank, pid, tid = (trace.ints(name)[row] for name in IDENTITY)
    names = (trace.meta.thread_names.get(f"{r}:{pid}:{tid}") for r in (rank, 0))
    name = next((name for name in names if name), "")
    place = f"rank {rank}, " if len(trace.meta.ranks) > 1 else ""
    return f"{place}tid {tid}" + (f" ({name})" if name else "")
