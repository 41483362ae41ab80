"""Which host thread does each event run on? And so: which event encloses it, and how much time has it for itself?"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.model import schema
from perfkit_core.model.schema import NESTED_KINDS
from perfkit_core.model.trace import Trace


def nested(trace: Trace, recorded_parent: IntArray | None) -> tuple[IntArray, IntArray]:
    """Row of the parent (-1: none) and self time (-1: no event that nests) of each event, each of shape (rows,).

    Events that occupy a host thread nest; memory events lie in them. ``recorded_parent`` is the tree of the source,
    where it has one; else times tell it.
    """
    threaded = trace.ints("tid", NO_ROW) != NO_ROW
    occupies = trace.host & trace.rows("kind", *NESTED_KINDS) & threaded
    inside = occupies | (trace.rows("kind", schema.MEMORY) & threaded)
    start, end = trace.ints("start_ns"), trace.end_ns
    if recorded_parent is None:
        parent = nesting.nest_in_order(inside, trace.ints("pid"), trace.ints("tid"), start, end)
    else:
        parent = _nearest_inside(recorded_parent, inside)
    return parent, nesting.self_times_in_order(occupies, parent, start, end)


def thread_numbers(trace: Trace, rows: IntArray) -> IntArray:
    """A number from 0 on for each (pid, tid) of ``rows``, shape (len(rows),)."""
    process, thread = trace.ints("pid")[rows], _numbered(trace.ints("tid")[rows])
    if not len(rows) or process.min() == process.max():
        return thread
    return _numbered(_numbered(process) * (int(thread.max()) + 1) + thread)


def _numbered(values: IntArray) -> IntArray:
    """Distinct values numbered from 0 on, by a hash table."""
    codes: IntArray = pa.array(values).dictionary_encode().indices.to_numpy().astype(np.int64)
    return codes


def _nearest_inside(parent: IntArray, inside: BoolArray) -> IntArray:
    """Recorded parents; one that does not nest is skipped for the one above it."""
    nearest = nesting.nearest_above(parent, inside)
    nearest[~inside] = NO_ROW
    return nearest
