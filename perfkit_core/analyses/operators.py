"""Which operators took the time?

One row an operator name (and shape, stack, thread where asked). An operator that does nothing but call itself once more
(a re-dispatch) is one call. ``total`` sums the calls, nested ones too; ``self`` is without what was called inside.
Equal to torch's ``key_averages()`` and to the operator rows of Paddle's ``summary()``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from perfkit_core import nesting
from perfkit_core.analyses import attribution, grouping
from perfkit_core.analyses.select import selected
from perfkit_core.analyses.tables import plain, ratio, statistics, texts
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.schema import NESTED_KINDS, NO_ROW, OPERATOR_KINDS
from perfkit_core.trace import BoolArray, IntArray, Trace

GROUPINGS = ("shape", "stack", "thread", "module", "phase", "step", "rank")


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Columns name, [shapes, stack, tid,] op_name, calls, self_cpu_ns, self_cpu_ratio, total_cpu_ns, avg_cpu_ns,
    min_cpu_ns, max_cpu_ns, self_device_ns, total_device_ns. The ratio is the share of the self time of all rows."""
    return span_table(trace, request, trace.host & trace.rows("kind", *OPERATOR_KINDS), "op_name")


def span_table(trace: Trace, request: ViewRequest, counted: BoolArray, what: str) -> pd.DataFrame:
    """The table of :func:`table` over any host events, with the text column ``what`` in place of op_name."""
    survivor = survivors(trace)
    rows = np.flatnonzero(counted & (survivor == np.arange(len(trace))) & selected(trace, request))
    keys: dict[str, Any] = {"name": texts(trace.codes("name"), rows)}
    keys |= grouping.keys(trace, request, rows, GROUPINGS) | {what: texts(trace.codes(what), rows)}
    result = statistics(keys, trace.ints("dur_ns")[rows], "cpu")
    for column, values in _sums(trace, survivor).items():
        frame = pd.DataFrame({**keys, "value": values[rows]})
        grouped = frame.groupby(list(keys), sort=False, dropna=False, observed=True)["value"]
        result[column] = grouped.sum().to_numpy()
    result["self_cpu_ratio"] = ratio(result["self_cpu_ns"], int(result["self_cpu_ns"].sum()))
    return plain(result[[*keys, *_MEASURES]])


_MEASURES = ("calls", "self_cpu_ns", "self_cpu_ratio", "total_cpu_ns", "avg_cpu_ns", "min_cpu_ns", "max_cpu_ns",
             "self_device_ns", "total_device_ns")  # fmt: skip


def survivors(trace: Trace) -> IntArray:
    """For each event the event it is counted in: itself, or for a mere re-dispatch the outermost of the chain."""
    parent, name = trace.ints("parent"), trace.codes("name").codes
    nested = trace.host & trace.rows("kind", *NESTED_KINDS) & (parent != NO_ROW)
    children = np.bincount(parent[nested], minlength=len(trace))
    again = nested & (name == name[parent]) & (children[parent] == 1)
    return nesting.nearest_on_path(parent, ~again)


def _sums(trace: Trace, survivor: IntArray) -> dict[str, IntArray]:
    own = np.zeros(len(trace), np.int64)
    device = np.zeros(len(trace), np.int64)
    np.add.at(own, survivor, np.maximum(trace.ints("self_ns"), 0))
    np.add.at(device, survivor, attribution.self_device_ns(trace))
    return {"self_cpu_ns": own, "self_device_ns": device, "total_device_ns": attribution.total_device_ns(trace)}


VIEW = View(
    name="operators",
    title="Operators",
    description="time of each operator on the host and of the device work it launched",
    table=table,
    groupings=GROUPINGS,
    order="self_cpu_ns",
    explain_empty=lambda trace: "no operators were recorded",
)
