"""Which operators took the time on the host and on the device, and which of their phases?

A tree: outermost operators, below them what they call (operators, details such as the inference of shapes and the
computation, calls that copy). Time is that of the host and of the device work launched inside, added.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from perfkit_core import grouped
from perfkit_core.analyses.fluid import labels, scope
from perfkit_core.analyses.operator.own_time import is_call
from perfkit_core.analyses.select import selected
from perfkit_core.analyses.tables import rounded_division
from perfkit_core.language import in_english
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.schema import NO_ROW, OPERATOR_DETAIL, OPERATOR_KINDS
from perfkit_core.table_columns import (
    CALLS,
    DEPTH,
    DEVICE,
    HOST,
    MAX,
    MIN,
    NAME,
    RATIO,
    Average,
    Share,
    duration,
    share,
)
from perfkit_core.trace import BoolArray, IntArray, Trace
from perfkit_core.trees import Tree, heaviest_first, merge, preorder


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Columns depth, name, calls, total_ns (cpu + device), cpu_ns, cpu_ratio (of the total of the row), device_ns,
    device_ratio, min_ns, max_ns, avg_ns (of the total of a call), ratio (total to the sum of the outermost rows)."""
    scope.asked_for(request, scope.THREAD)
    member = _members(trace, request)
    named = labels.labels(trace, request, member)
    tree = merge(trace.ints("parent"), named.key, member)
    measures = _measures(tree, trace.ints("dur_ns"), scope.launched_ns(trace))
    roots = measures["total_ns"][tree.parent == NO_ROW].sum()
    measures["ratio"] = _share(measures["total_ns"], np.full(len(tree), roots))
    result = pd.DataFrame({"depth": tree.depth(), "name": named.names(tree), **measures})
    weight = heaviest_first(result["name"], result["total_ns"].to_numpy(np.int64))
    return result.iloc[preorder(tree.parent, weight)].reset_index(drop=True)


def _members(trace: Trace, request: ViewRequest) -> BoolArray:
    """Operators, and inside of them details and the calls that copy; a re-dispatch counts once."""
    inside = scope.outermost(trace, request) != NO_ROW
    events = trace.host & trace.rows("kind", *OPERATOR_KINDS, OPERATOR_DETAIL)
    member: BoolArray = inside & selected(trace, request) & ((events & is_call(trace)) | labels.copy_calls(trace))
    return member


def _measures(tree: Tree, cpu: IntArray, device: IntArray) -> dict[str, IntArray | np.ndarray]:
    calls, cpu_ns, device_ns = (tree.own(values) for values in (np.ones(len(cpu), np.bool_), cpu, device))
    total = cpu_ns + device_ns
    least, most = _extremes(tree, cpu + device)
    return {
        "calls": calls,
        "total_ns": total,
        "cpu_ns": cpu_ns,
        "cpu_ratio": _share(cpu_ns, total),
        "device_ns": device_ns,
        "device_ratio": _share(device_ns, total),
        "min_ns": least,
        "max_ns": most,
        "avg_ns": rounded_division(total, calls),
    }


def _extremes(tree: Tree, values: IntArray) -> tuple[IntArray, IntArray]:
    least, most = grouped.extremes(tree.node, len(tree), values)
    return least, np.maximum(most, 0)


def _share(part: IntArray, whole: IntArray) -> np.ndarray:
    return np.where(whole > 0, part / np.maximum(whole, 1), 0.0)


COLUMNS = (
    DEPTH,
    NAME,
    CALLS,
    duration("total_ns", "Total", per_step=True, description="CPU + device"),
    duration("cpu_ns", "CPU", per_step=True, place=HOST),
    share("cpu_ratio", "CPU", Share("cpu_ns", column="total_ns"), place=HOST, description="of the total of the row"),
    duration("device_ns", "Device", per_step=True, place=DEVICE),
    share("device_ratio", "Device", Share("device_ns", column="total_ns"), place=DEVICE),
    duration("min_ns", "Min", merge=MIN, of_capture=True, description="of the total of a call"),
    duration("max_ns", "Max", merge=MAX, of_capture=True),
    duration("avg_ns", "Avg", merge=Average("total_ns")),
    replace(RATIO, merge=Share("total_ns"), description="of the sum of the outermost rows"),
)

VIEW = View(
    name="fluid_events",
    title="Event Summary",
    description="host and device time of the outermost operators and of what they call",
    table=table,
    columns=COLUMNS,
    groupings=scope.GROUPINGS,
    order="total_ns",
    explain_empty=lambda trace: in_english("no operators were recorded"),
    group=scope.GROUP,
    page=False,
    reduction=MergedRows(weight=("total_ns",), together_only=True),
)
