"""The operator and the phase that events and pieces of time belong to.

The operator of an event is the outermost named one around it; what that calls belongs to it. Operators that only run
others (a branch, a compiled region) are ignored. Where none is named, it is the outermost operator under its native
name. Device work belongs to the operator that launched it. Every operator of the optimizer phase is
``optimizer_update``, since frameworks split an update differently.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, Codes, IntArray
from perfkit_core.compare.slices import Slices
from perfkit_core.model.schema import BACKWARD, DATALOADER, FORWARD, OPTIMIZER, OTHER
from perfkit_core.model.trace import Trace, once
from perfkit_core.operators.names import family, is_container
from perfkit_core.views import attribution
from perfkit_core.views.operators.families import event_families

OPTIMIZER_UPDATE: Final = "optimizer_update"


@dataclass(frozen=True, slots=True)
class Units:
    """``row``: row of the operator that each event belongs to (-1: none); ``name``: what it is called (canonical, else
    native; null outside of operators); ``family`` of that name, else of the event itself, shape (rows,)."""

    row: IntArray
    name: Codes
    family: Codes

    @property
    def own(self) -> BoolArray:
        """True for the events that are these operators."""
        mask: BoolArray = self.row == np.arange(len(self.row))
        return mask


@once
def units(trace: Trace) -> Units:
    """The operators of the events of a trace."""
    row = _rows(trace)
    name = _names(trace)
    of_unit = Codes(np.where(row >= 0, name.codes[row], -1).astype(np.int32), name.values)
    return Units(row, of_unit, _families(trace, of_unit))


def _rows(trace: Trace) -> IntArray:
    parent, operator = trace.ints("parent"), trace.operators
    named = nesting.outermost(parent, operator & (_worked_on(trace) | trace.rows("phase", OPTIMIZER)))
    row = np.where(named != NO_ROW, named, nesting.outermost(parent, operator))
    launched_by = trace.ints("launched_by")
    launched = launched_by != NO_ROW
    row[launched] = row[launched_by[launched]]
    return row


def _worked_on(trace: Trace) -> BoolArray:
    """True where an operator has a canonical name of its own, not just that of what runs others."""
    names = trace.codes("op_name")
    return names.lookup(np.array([not is_container(name) for name in names.values], np.bool_), False)


def _names(trace: Trace) -> Codes:
    """What each operator is called: as in the columns op_name and name, but for the optimizer's."""
    canonical, native = trace.codes("op_name"), trace.codes("name")
    texts = np.array([OPTIMIZER_UPDATE, *canonical.values, *native.values], object)
    code, values = pd.factorize(texts)
    own = np.where(canonical.codes >= 0, 1 + canonical.codes, 1 + len(canonical.values) + native.codes)
    own = np.where(trace.rows("phase", OPTIMIZER), 0, own)
    return Codes(code[own].astype(np.int32), list(values))


def _families(trace: Trace, name: Codes) -> Codes:
    told = event_families(trace)
    of_name = [family(value) for value in name.values]
    values = list(dict.fromkeys([*(value for value in of_name if value is not None), *told.values]))
    position = {value: number for number, value in enumerate(values)}
    by_name = name.lookup(_numbers([position.get(value or "", -1) for value in of_name]), np.int32(-1))
    by_event = told.lookup(_numbers([position[value] for value in told.values]), np.int32(-1))
    return Codes(np.where(by_name >= 0, by_name, by_event).astype(np.int32), values)


def _numbers(values: list[int]) -> npt.NDArray[np.int32]:
    return np.array(values, np.int32)


def unit_times(trace: Trace) -> tuple[IntArray, IntArray]:
    """Host and device time of each of the operators of :func:`units`: an unnamed one without the named ones inside it.
    Shape (rows,); other rows hold what they themselves took."""
    own, parent = units(trace).own, trace.ints("parent")
    cpu, device = trace.ints("dur_ns").copy(), attribution.total_device_ns(trace).copy()
    holder = nesting.nearest_above(parent, own)
    inner = np.flatnonzero(own & (holder != NO_ROW))
    for values in (cpu, device):
        np.subtract.at(values, holder[inner], values[inner].copy())
    return cpu, device


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
