"""Which operators took the time, the device's time and the memory?

One row an operator name (and shape, stack, thread … where asked). An operator that does nothing but call itself once
more (a re-dispatch) is one call. ``total`` sums the calls, nested ones too; ``self`` is without what was called inside.
Device work that no operator owns has rows of its own, so that the self device times add up to all device work.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.language.messages import message
from perfkit_core.model.columns import DEVICE, HOST, NAME, OP_NAME, Share, added_by, share
from perfkit_core.model.schema import OPERATOR_KINDS
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.views import grouping
from perfkit_core.views.operators import operator_memory, own_time
from perfkit_core.views.operators.own_time import survivors
from perfkit_core.views.operators.spans import GROUPINGS, MEASURES, SPAN_COLUMNS, chosen, span_table
from perfkit_core.views.operators.unowned import unowned
from perfkit_core.views.tables import Groups, group, integers, plain, ratio

__all__ = ["MEMORY_ROW", "VIEW", "span_table", "survivors", "table"]

MEMORY_ROW = "[memory]"


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """One row a name, by what is asked for; see :data:`COLUMNS`. What was not recorded is NA. Raises UsageError."""
    whole = span_table(trace, request, trace.host & trace.rows("kind", *OPERATOR_KINDS), "op_name")
    parts = [_without_operator(trace, request, name, rows) for name, rows in unowned(trace, request).items()]
    if request.native and operator_memory.recorded(trace):
        parts.append(_without_event(trace, request))
    parts = [part for part in parts if len(part)]
    return _shares(pd.concat([whole, *parts], ignore_index=True)) if parts else whole


def _without_operator(trace: Trace, request: ViewRequest, name: str, rows: IntArray) -> pd.DataFrame:
    groups = _groups(trace, request, name, rows)
    device = groups.sum(trace.ints("dur_ns")[rows])
    known = np.ones(len(groups), np.bool_)
    return _table(groups, dict.fromkeys(("self_device_ns", "total_device_ns"), integers(device, known)))


def _without_event(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Memory events in the time of no host event."""
    rows = np.flatnonzero(operator_memory.uncovered(trace) & chosen(trace, request))
    groups = _groups(trace, request, MEMORY_ROW, rows)
    zero, one = np.zeros(len(rows), np.int64), np.ones(len(rows), np.bool_)
    change, host = trace.ints("bytes", 0)[rows], trace.host[rows]
    found = {"calls": one, "self_cpu_bytes": np.where(host, change, 0), "self_device_bytes": np.where(host, 0, change)}
    found |= {name.replace("self", "total"): values for name, values in found.items()}
    found |= dict.fromkeys(("self_cpu_ns", "total_cpu_ns", "self_device_ns", "total_device_ns"), zero)
    return _table(groups, {name: groups.known_sum(values, one) for name, values in found.items()})


def _groups(trace: Trace, request: ViewRequest, name: str, rows: IntArray) -> Groups:
    return group({"name": np.full(len(rows), name, object)} | grouping.keys(trace, request, rows, GROUPINGS))


def _table(groups: Groups, columns: dict[str, Any]) -> pd.DataFrame:
    """All columns of the view, NA where nothing is known."""
    missing = integers(np.zeros(len(groups), np.int64), np.zeros(len(groups), np.bool_))
    found = groups.keys.assign(op_name=pd.Series(pd.NA, groups.keys.index, dtype=object))
    ratios = {name: np.full(len(groups), np.nan) for name in MEASURES if name.endswith("_ratio")}
    return plain(found.assign(**{name: ratios.get(name, columns.get(name, missing)) for name in MEASURES}))


def _shares(table: pd.DataFrame) -> pd.DataFrame:
    device = table["self_device_ns"].to_numpy(np.int64)
    return table.assign(self_device_ratio=ratio(device, int(device.sum()))) if device.any() else table


def _self_times(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int | None:
    """The self time of all rows; natively of all host events."""
    return own_time.whole_native_ns(trace) if request.native else None


def _outermost_ns(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int:
    """The time of the outermost operators; natively the self time of all host events."""
    if request.native:
        return own_time.whole_native_ns(trace)
    part, share = table["total_cpu_ns"], table["total_cpu_ratio"]
    telling = (share > 0).fillna(False) & part.notna()
    if not telling.any():
        return 0
    # exact below 2^51 (26 days in ns): the two roundings of a division and its inverse are then below half of 1
    shares = share[telling].to_numpy(np.float64)
    return round(int(part[telling].iloc[shares.argmax()]) / float(shares.max()))


COLUMNS: Final = (
    NAME,
    *added_by(GROUPINGS),
    OP_NAME,
    *SPAN_COLUMNS,
    share("self_cpu_ratio", "Self CPU", Share("self_cpu_ns", whole=_self_times), place=HOST),
    share("total_cpu_ratio", "Total CPU", Share("total_cpu_ns", whole=_outermost_ns), place=HOST),
    share("self_device_ratio", "Self device", Share("self_device_ns"), place=DEVICE),
)

VIEW = View(
    name="operators",
    title="Operators",
    description="time of each operator on the host and of the device work it launched, memory and FLOPs",
    table=table,
    columns=COLUMNS,
    groupings=GROUPINGS,
    order="self_cpu_ns",
    explain_empty=lambda trace: message("no operators were recorded"),
    native=True,
    reduction=MergedRows(),
)
