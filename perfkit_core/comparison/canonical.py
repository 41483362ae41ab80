"""The operator time of one run by canonical operator, without counting anything twice.

Counted are the outermost operators that have a canonical name; what they call belongs to them. Within the optimizer
phase every operator is ``optimizer_update``, since frameworks split an update differently. What remains of the
operators at the top has no canonical name and stays under its native one: the rows sum to the operator time.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core import nesting
from perfkit_core.analyses import attribution
from perfkit_core.operator_names import is_container
from perfkit_core.schema import NO_ROW, OPERATOR_KINDS, OPTIMIZER
from perfkit_core.trace import BoolArray, IntArray, Trace

OPTIMIZER_UPDATE = "optimizer_update"


def operator_time(trace: Trace, chosen: BoolArray) -> pd.DataFrame:
    """Columns name (canonical, or native where unnamed), named (bool), calls, cpu_ns, device_ns: sums of ``chosen``."""
    operator = chosen & trace.host & trace.rows("kind", *OPERATOR_KINDS)
    optimizer = operator & trace.rows("phase", OPTIMIZER)
    named = operator & (_has_name(trace) | optimizer)
    outermost = _outermost(trace, named)
    top = _outermost(trace, operator)
    measures = {"cpu_ns": trace.ints("dur_ns"), "device_ns": attribution.total_device_ns(trace)}
    names = trace.codes("op_name").lookup(np.array([*trace.codes("op_name").values, ""], object)[:-1], "")
    names = np.where(optimizer, OPTIMIZER_UPDATE, names)
    rows = np.flatnonzero(outermost)
    sums = {key: values[rows] for key, values in measures.items()}
    known = pd.DataFrame({"name": names[rows], "named": True, **sums})
    rest = _rest(trace, top & ~outermost, outermost, measures)
    table = pd.concat([known, rest], ignore_index=True).assign(calls=1)
    return table.groupby(["name", "named"], sort=False)[["calls", "cpu_ns", "device_ns"]].sum().reset_index()


def _has_name(trace: Trace) -> BoolArray:
    """Operators with a canonical name; what only runs other operators has none that counts."""
    names = trace.codes("op_name")
    counts = np.array([not is_container(name) for name in names.values], np.bool_)
    found: BoolArray = names.lookup(counts, False)
    return found


def _outermost(trace: Trace, wanted: BoolArray) -> BoolArray:
    """The wanted events that lie in no other wanted event."""
    parent = trace.ints("parent")
    nearest = nesting.nearest_on_path(parent, wanted)
    inside: BoolArray = (parent != NO_ROW) & (nearest[parent] != NO_ROW)
    return wanted & ~inside


def _rest(trace: Trace, top: BoolArray, outermost: BoolArray, measures: dict[str, IntArray]) -> pd.DataFrame:
    """Unnamed operators at the top, less the named ones inside them."""
    rows = np.flatnonzero(top)
    holder = nesting.nearest_on_path(trace.ints("parent"), top)
    inner = np.flatnonzero(outermost & (holder != NO_ROW))
    native = trace.codes("name")
    table = {"name": np.array(native.values, object)[native.codes[rows]], "named": False}
    for key, values in measures.items():
        left = values.copy()
        np.subtract.at(left, holder[inner], values[inner])
        table[key] = left[rows]
    return pd.DataFrame(table)
