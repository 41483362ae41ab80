"""In which phase is time that belongs to no operator?

A label or span around it tells. Else it is of the phase of the host's work before and after it, where that is the same:
Python code between two operators of the forward pass is forward, whether or not the framework marked the pass. Of the
host's work only: a device works on what was launched long before, so what runs there has the phase of its launch alone.
"""

from __future__ import annotations

import numpy as np

from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.compare.align.units import units
from perfkit_core.compare.attribute.slices import Slices
from perfkit_core.model.schema import BACKWARD, DATALOADER, FORWARD, OPTIMIZER, OTHER
from perfkit_core.model.trace import Trace


def piece_phases(trace: Trace, pieces: Slices) -> IntArray:
    """The phase of each piece, as codes of the column, their number where it is unknown, shape (pieces,)."""
    phase, unit = trace.codes("phase"), units(trace).row
    unknown = len(phase.values)
    row = pieces.row
    holder = np.where(row == NO_ROW, NO_ROW, np.append(unit, NO_ROW)[row])
    holder = np.where(holder == NO_ROW, row, holder)
    own = np.append(phase.codes, -1)[holder].astype(np.int64)
    told = np.append(phase.rows(DATALOADER, FORWARD, BACKWARD, OPTIMIZER), False)[holder]
    on_host = told & np.append(trace.host, False)[row]
    open_ones = ~told & np.append(trace.host & (unit == NO_ROW), True)[row]
    before, after = _last(on_host, pieces.window), _last(on_host[::-1], pieces.window[::-1])[::-1]
    after = np.where(after >= 0, len(own) - 1 - after, -1)
    same = open_ones & (before >= 0) & (after >= 0) & (own[before] == own[after])
    found = np.where(same, own[before], own)
    found = np.where((row == NO_ROW) & ~same, phase.values.index(OTHER) if OTHER in phase.values else -1, found)
    return np.where(found < 0, unknown, found)


def _last(wanted: BoolArray, window: IntArray) -> IntArray:
    """Index of the last wanted piece up to each, in its window; -1 where there is none."""
    index = np.arange(len(wanted))
    index = np.maximum.accumulate(np.where(wanted, index, -1)) if len(wanted) else index
    same = (index >= 0) & (window[np.maximum(index, 0)] == window) if len(wanted) else wanted
    return np.where(same, index, -1)
