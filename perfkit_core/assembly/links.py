"""References between events: the parent of each event, and the launch of each device event. A parent is the nearest
event of the same thread that encloses an event. A launch and its device work have the same correlation id; one launch
may have thousands of kernels (a graph). Without a recorded launch, the operator with the same external id counts as the
launch; remaining work is reported as unlaunched."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW, IntArray, filled
from perfkit_core.language.messages import message
from perfkit_core.model import meta, schema
from perfkit_core.model.trace import Trace

_DENSE = 8
"""Up to this many times as many possible ids as ids, a table of all is faster than a search."""


def nested(trace: Trace, recorded_parent: IntArray | None) -> tuple[IntArray, IntArray]:
    """Return the parent's row (-1: none) and the self time (-1: does not nest) of each event, shape (rows,) each.
    Events that occupy a host thread nest; memory events lie in them. ``recorded_parent`` is the tree of the source,
    None to compute it from the times."""
    threaded = trace.ints("tid", NO_ROW) != NO_ROW
    occupies = trace.host & trace.rows("kind", *schema.NESTED_KINDS) & threaded
    inside = occupies | (trace.rows("kind", schema.MEMORY) & threaded)
    start, end = trace.ints("start_ns"), trace.end_ns
    if recorded_parent is None:
        parent = nesting.nest_in_order(inside, trace.ints("pid"), trace.ints("tid"), start, end)
    else:  # recorded parents that do not nest are skipped
        parent = nesting.nearest_above(recorded_parent, inside)
        parent[~inside] = NO_ROW
    return parent, nesting.self_times_in_order(occupies, parent, start, end)


def thread_numbers(trace: Trace, rows: IntArray) -> IntArray:
    """Return a number from 0 on for each (pid, tid) of ``rows``, shape (len(rows),)."""
    process, thread = trace.ints("pid")[rows], _numbered(trace.ints("tid")[rows])
    if not len(rows) or process.min() == process.max():
        return thread
    return _numbered(_numbered(process) * (int(thread.max()) + 1) + thread)


def _numbered(values: IntArray) -> IntArray:
    codes: IntArray = pa.array(values).dictionary_encode().indices.to_numpy().astype(np.int64)
    return codes


def launches(trace: Trace, external: IntArray) -> tuple[IntArray, tuple[meta.Finding, ...]]:
    """Return the row of the launching host event of each device event (-1: none, and for host events), shape (rows,).
    ``external`` is the id that an operator shares with its launches, shape (rows,), negative where unknown."""
    work = trace.rows("kind", *schema.DEVICE_WORK)
    device = np.flatnonzero(~trace.host & (trace.ints("correlation") >= 0) | work)
    launched_by = filled(len(trace), NO_ROW)
    calls = np.flatnonzero(trace.host & trace.rows("kind", schema.RUNTIME, schema.SYNC))
    launched_by[device] = _match(trace.ints("correlation")[device], trace.ints("correlation")[calls], calls)
    open_rows = device[launched_by[device] == NO_ROW]
    if len(open_rows):
        operators = np.flatnonzero(trace.host & trace.rows("kind", *schema.OPERATOR_KINDS))
        launched_by[open_rows] = _match(external[open_rows], external[operators], operators)
    if not work.any():
        text = message("no device work was recorded: device times are 0")
        return launched_by, (meta.Finding("no-device-events", text),)
    lost = int((work & (launched_by == NO_ROW)).sum())
    if not lost:
        return launched_by, ()
    text = message(
        "{lost} of {count} device events have no recorded launch: they belong to no operator, step or phase",
        lost=lost,
        count=int(work.sum()),
    )
    return launched_by, (meta.Finding("device-events-without-launch", text),)


def _match(wanted: IntArray, keys: IntArray, rows: IntArray) -> IntArray:
    """Return for each wanted key the first of ``rows`` with an equal key, -1: none. Negative keys are unknown."""
    known = keys >= 0
    if not known.all():  # indexing copies
        keys, rows = keys[known], rows[known]
    matches = filled(len(wanted), NO_ROW)
    if not len(keys) or not len(wanted):
        return matches
    low, span = int(keys.min()), int(keys.max()) - int(keys.min()) + 1
    if span <= _DENSE * len(keys):
        first = filled(span, NO_ROW)
        first[keys[::-1] - low] = rows[::-1]
        hit = (wanted >= low) & (wanted < low + span)
        matches[hit] = first[wanted[hit] - low]
        return matches
    order = np.argsort(keys, kind="stable")
    keys, rows = keys[order], rows[order]
    position = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    hit = (keys[position] == wanted) & (wanted >= 0)
    matches[hit] = rows[position[hit]]
    return matches
