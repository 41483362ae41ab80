"""Which operators took the time, the device's time and the memory?

One row an operator name (and shape, stack, thread … where asked). An operator that does nothing but call itself once
more (a re-dispatch) is one call. ``total`` sums the calls, nested ones too; ``self`` is without what was called inside.
Device work that no operator owns has rows of its own, so that the self device times add up to all device work.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from perfkit_core.analyses import grouping
from perfkit_core.analyses.operator import operator_memory
from perfkit_core.analyses.operator.spans import GROUPINGS, MEASURES, SUMS, chosen, span_table, survivors
from perfkit_core.analyses.operator.unowned import unowned
from perfkit_core.analyses.tables import Groups, group, integers, plain, ratio
from perfkit_core.language import in_english
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.schema import OPERATOR_KINDS
from perfkit_core.trace import IntArray, Trace

__all__ = ["MEMORY_ROW", "VIEW", "span_table", "survivors", "table"]

MEMORY_ROW = "[memory]"


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Columns name, [shapes, stack, overload, tid, label, scope, module, phase, step, device, rank,] op_name, calls,
    self_cpu_ns, self_cpu_ratio, total_cpu_ns, total_cpu_ratio (to the time of the outermost), avg/min/max_cpu_ns,
    self_device_ns, self_device_ratio, total_device_ns, avg/min/max_device_ns (of a call, with all inside), self_ and
    total_ cpu_bytes and device_bytes (allocated less freed), flops. What was not recorded is NA. Raises UsageError."""
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


VIEW = View(
    name="operators",
    title="Operators",
    description="time of each operator on the host and of the device work it launched, memory and FLOPs",
    table=table,
    groupings=GROUPINGS,
    order="self_cpu_ns",
    explain_empty=lambda trace: in_english("no operators were recorded"),
    native=True,
    per_step=SUMS,
)
