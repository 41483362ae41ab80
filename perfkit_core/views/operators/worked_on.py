"""On which device did the work of a host event run?"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, Codes, IntArray, matches
from perfkit_core.model.schema import DEVICE_WORK
from perfkit_core.model.trace import Trace, once
from perfkit_core.views import attribution

SEVERAL: Final = "several"


@once
def worked_on(trace: Trace) -> Codes:
    """For each host event the device that ran all the work launched in it, ``several`` where there are more, its own
    place where it launched none; for each device event its device. Shape (rows,)."""
    place = trace.codes("device")
    owner = attribution.owners(trace)
    work = trace.rows("kind", *DEVICE_WORK) & (owner != NO_ROW)
    devices, found = np.zeros(len(trace), np.int64), place.codes.astype(np.int64)
    for code in np.unique(place.codes[work]):
        mine = np.zeros(len(trace), np.int64)
        mine[owner[work & (place.codes == code)]] = 1
        has = trace.host & (nesting.sum_up(trace.ints("parent"), mine) > 0)
        devices += has
        found[has] = code
    found[devices > 1] = len(place.values)
    return Codes(found.astype(np.int32), [*place.values, SEVERAL])


def on_device(trace: Trace, pattern: str | None) -> BoolArray:
    """True for events whose device, or that of the work they launched, contains a match. Raises UsageError."""
    if pattern is None:
        return np.ones(len(trace), np.bool_)
    found = np.zeros(len(trace), np.bool_)
    for codes in (trace.codes("device"), worked_on(trace)):
        found |= codes.lookup(matches(codes.values, pattern), False)
    return found


def key(trace: Trace, rows: IntArray, argument: str | None) -> pd.Categorical:
    """:func:`worked_on` as what the rows of a table are split by."""
    codes = worked_on(trace)
    return pd.Categorical.from_codes(codes.codes[rows], categories=pd.Index(codes.values, dtype=object))
