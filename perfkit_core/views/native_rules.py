"""What Paddle's ``summary()`` counts, for the tables that reproduce it (``native``).

Its step time is the union of everything that was recorded as a step, also of a last one in which nothing took place. A
call of the device runtime counts when a host event is around it, device work when it was launched by such a call.
"""

from __future__ import annotations

import numpy as np

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.model.schema import DEVICE_WORK, MEMORY, RUNTIME, SYNC
from perfkit_core.model.trace import Trace
from perfkit_core.views.attribution import owners
from perfkit_core.views.steps.step_rows import cut_off_rows, step_rows


def native_steps(trace: Trace, chosen: BoolArray) -> BoolArray:
    """True for the steps, the cut-off one too (if all events are chosen), shape (rows,)."""
    mask = np.zeros(len(trace), np.bool_)
    mask[step_rows(trace)] = True
    mask &= chosen
    return mask | cut_off_rows(trace) if chosen.all() else mask


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
