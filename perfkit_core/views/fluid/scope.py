"""What the tables of this report count: operators with all that is inside them, the device work launched there, and
the host threads, numbered in the order in which they appear.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.algorithms import groupby, nesting
from perfkit_core.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.errors import UsageError
from perfkit_core.model.schema import DEVICE_WORK, NESTED_KINDS
from perfkit_core.model.trace import Trace, once
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.views.operators import dataflow
from perfkit_core.views.select import selected
from perfkit_core.views.threads import IDENTITY, threads

GROUP: Final = "fluid"
THREAD: Final = "thread"
INSTANCE: Final = "instance"
GROUPINGS: Final = (THREAD, INSTANCE)

DIRECTIONS: Final = {"HtoD": "CPU->GPU", "DtoH": "GPU->CPU", "DtoD": "GPU->GPU same device",
                     "PtoP": "GPU->GPU other device", "HtoH": "CPU->CPU"}  # fmt: skip
UNKNOWN_DIRECTION: Final = "direction not recorded"


def asked_for(request: ViewRequest, grouping: str) -> bool:
    """Whether the rows are to be split by ``grouping``. Raises UsageError for a grouping that this report lacks."""
    for item in request.by:
        if item not in GROUPINGS:
            raise UsageError(f"this report cannot be grouped by {item!r}", f"known: {', '.join(GROUPINGS)}")
    return grouping in request.by


def outermost(trace: Trace, request: ViewRequest) -> IntArray:
    """Row of the outermost operator of the request around each event (itself too), -1 where there is none."""
    chosen = selected(trace, request)
    if chosen.all():
        return dataflow.outermost(trace)
    wanted = trace.operators & chosen
    return nesting.outermost(trace.ints("parent"), wanted)


def launches(trace: Trace, *kinds: str) -> IntArray:
    """Rows of the device work (of the kinds, or all of it) whose launch was recorded."""
    return np.flatnonzero(trace.rows("kind", *(kinds or DEVICE_WORK)) & (trace.ints("launched_by") != NO_ROW))


@once
def launched_ns(trace: Trace) -> IntArray:
    """Sum of the device work launched in each host event or in what it calls, shape (rows,)."""
    work = launches(trace)
    own = np.zeros(len(trace), np.int64)
    np.add.at(own, trace.ints("launched_by")[work], trace.ints("dur_ns")[work])
    return nesting.sum_up(trace.ints("parent"), own)


def direction(copy_kind: str) -> str:
    """A recorded copy kind ("HtoD pinned") in the words of this report ("CPU->GPU")."""
    return DIRECTIONS.get(copy_kind.split(" ")[0], copy_kind) if copy_kind else UNKNOWN_DIRECTION


@once
def thread_numbers(trace: Trace) -> tuple[IntArray, IntArray]:
    """Number of the thread of each event (-1: no host event that occupies one), and the first row of each thread."""
    every = threads(trace)
    key = np.where(trace.host & trace.rows("kind", *NESTED_KINDS), every.code, -1)
    return groupby.by_appearance(key, len(every))


def described(trace: Trace, row: int) -> str:
    """The thread of an event in words: rank where there are several, number and name of the thread."""
    rank, pid, tid = (trace.ints(name)[row] for name in IDENTITY)
    names = (trace.meta.thread_names.get(f"{r}:{pid}:{tid}") for r in (rank, 0))
    name = next((name for name in names if name), "")
    place = f"rank {rank}, " if len(trace.meta.ranks) > 1 else ""
    return f"{place}tid {tid}" + (f" ({name})" if name else "")
