"""Which host event launched which device work.

By correlation id: launch and device work carry the same number. One launch may have thousands of kernels (a graph).
Where no launch was recorded, the operator that shares the external id is taken; else the work has no launch, which is
reported.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.language.messages import message
from perfkit_core.model.meta import Finding
from perfkit_core.model.schema import DEVICE_WORK, OPERATOR_KINDS, RUNTIME, SYNC
from perfkit_core.model.trace import Trace
from perfkit_core.runtime import buffers

_DENSE: Final = 8
"""Ids that are counted on leave few gaps: then a table of all of them is faster than a search."""


def launches(trace: Trace, external: IntArray) -> tuple[IntArray, tuple[Finding, ...]]:
    """Row of the launching host event of each device event (-1: none, and for host events), shape (rows,).

    ``external`` is the id that an operator shares with what it launched, shape (rows,), negative where unknown.
    """
    device = np.flatnonzero(~trace.host & (trace.ints("correlation") >= 0) | trace.rows("kind", *DEVICE_WORK))
    launched_by = buffers.filled(len(trace), NO_ROW)
    calls = np.flatnonzero(trace.host & trace.rows("kind", RUNTIME, SYNC))
    launched_by[device] = _match(trace.ints("correlation")[device], trace.ints("correlation")[calls], calls)
    open_rows = device[launched_by[device] == NO_ROW]
    if len(open_rows):
        operators = np.flatnonzero(trace.host & trace.rows("kind", *OPERATOR_KINDS))
        launched_by[open_rows] = _match(external[open_rows], external[operators], operators)
    return launched_by, _findings(trace, launched_by)


def _match(wanted: IntArray, keys: IntArray, rows: IntArray) -> IntArray:
    """For each wanted key the first of ``rows`` whose key is equal, -1: none. Negative keys are unknown."""
    known = keys >= 0
    if not known.all():  # else it would be a copy of all
        keys, rows = keys[known], rows[known]
    found = buffers.filled(len(wanted), NO_ROW)
    if not len(keys) or not len(wanted):
        return found
    low, span = int(keys.min()), int(keys.max()) - int(keys.min()) + 1
    if span <= _DENSE * len(keys):
        first = buffers.filled(span, NO_ROW)
        first[keys[::-1] - low] = rows[::-1]
        hit = (wanted >= low) & (wanted < low + span)
        found[hit] = first[wanted[hit] - low]
        return found
    order = np.argsort(keys, kind="stable")
    keys, rows = keys[order], rows[order]
    position = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    hit = (keys[position] == wanted) & (wanted >= 0)
    found[hit] = rows[position[hit]]
    return found


def _findings(trace: Trace, launched_by: IntArray) -> tuple[Finding, ...]:
    work = trace.rows("kind", *DEVICE_WORK)
    if not work.any():
        text = message("no work on a device was recorded: device times are 0")
        return (Finding("no-device-events", text),)
    lost = int((work & (launched_by == NO_ROW)).sum())
    if not lost:
        return ()
    text = message(
        "{lost} of {count} device events have no recorded launch: they are in no operator, step or phase",
        lost=lost,
        count=int(work.sum()),
    )
    return (Finding("device-events-without-launch", text),)
