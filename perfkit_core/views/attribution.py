"""Device work counted for the host events that caused it.

The owner of a device event is the innermost host event around its launch that is not itself a runtime call. ``self`` is
what an event owns, ``total`` also what the events inside it own. Both are sums over streams, as the frameworks' own
tables have them: they can exceed the time that passed.
"""

from __future__ import annotations

import numpy as np

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.model.schema import DEVICE_WORK, RUNTIME, SYNC
from perfkit_core.model.trace import Trace, once


@once
def owners(trace: Trace) -> IntArray:
    """Row of the owner of each device event (-1: none, and for host events), shape (rows,)."""
    parent, launched_by = trace.ints("parent"), trace.ints("launched_by")
    outside_runtime = nesting.nearest_on_path(parent, ~trace.rows("kind", RUNTIME, SYNC))
    launched = launched_by != NO_ROW
    owner = np.full(len(trace), NO_ROW, np.int64)
    above = outside_runtime[launched_by[launched]]
    owner[launched] = np.where(above == NO_ROW, launched_by[launched], above)
    return owner


@once
def self_device_ns(trace: Trace, *kinds: str) -> IntArray:
    """Device time that each host event owns, of the given kinds (all device work when none), shape (rows,)."""
    owner = owners(trace)
    counted = trace.rows("kind", *(kinds or DEVICE_WORK)) & (owner != NO_ROW)
    own = np.zeros(len(trace), np.int64)
    np.add.at(own, owner[counted], trace.ints("dur_ns")[counted])
    return own


@once
def total_device_ns(trace: Trace, *kinds: str) -> IntArray:
    """As :func:`self_device_ns`, with everything inside each event."""
    return nesting.sum_up(trace.ints("parent"), self_device_ns(trace, *kinds))


@once
def unlaunched(trace: Trace) -> BoolArray:
    """True for device work whose launch was not recorded: it belongs to no operator, step or phase, shape (rows,)."""
    lost: BoolArray = trace.rows("kind", *DEVICE_WORK) & (trace.ints("launched_by") == NO_ROW)
    return lost
