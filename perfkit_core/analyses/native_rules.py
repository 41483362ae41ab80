"""What Paddle's ``summary()`` counts, for the tables that reproduce it (``native``).

Its step time is the union of everything that was recorded as a step, also of a last one in which nothing took place. A
call of the device runtime counts when a host event is around it, device work when it was launched by such a call.
"""

from __future__ import annotations

import numpy as np

from perfkit_core import nesting
from perfkit_core.analyses.attribution import owners
from perfkit_core.analyses.span import union_ns
from perfkit_core.analyses.step_rows import cut_off_rows, step_rows
from perfkit_core.schema import DEVICE_WORK, MEMORY, NO_ROW, RUNTIME, SYNC
from perfkit_core.trace import BoolArray, IntArray, Trace


def native_steps(trace: Trace, chosen: BoolArray) -> IntArray:
    """Rows of the steps, the cut-off one too (if all steps are chosen)."""
    rows = step_rows(trace)
    cut_off = np.flatnonzero(cut_off_rows(trace)) if chosen.all() else rows[:0]
    return np.concatenate([rows[chosen[rows]], cut_off])


def native_step_ns(trace: Trace, chosen: BoolArray, mine: BoolArray | None = None) -> int:
    """Step time that ratios are divided by: a union within each rank, summed over ranks. ``mine``: of these events."""
    mask = np.zeros(len(trace), np.bool_)
    mask[native_steps(trace, chosen)] = True
    return union_ns(trace, mask if mine is None else mask & mine)


def native_owners(trace: Trace) -> IntArray:
    """Row of the host event that device work counts for, -1 where it counts for none, shape (rows,)."""
    owner = owners(trace)
    return np.where(_calls(trace)[owner], NO_ROW, owner)


def counted(trace: Trace) -> BoolArray:
    """True for the events that count, shape (rows,)."""
    calls = _calls(trace)
    alone = calls & (nesting.nearest_on_path(trace.ints("parent"), ~calls) == NO_ROW)
    lost = trace.rows("kind", *DEVICE_WORK) & (native_owners(trace) == NO_ROW)
    counts: BoolArray = ~alone & ~lost & ~trace.rows("kind", MEMORY)
    return counts


def _calls(trace: Trace) -> BoolArray:
    return trace.host & trace.rows("kind", RUNTIME, SYNC)
