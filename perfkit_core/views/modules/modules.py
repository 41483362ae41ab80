"""What did each layer of the model cost? A tree of layers, with what is in no layer in a row of its own.

Host time is that of operators, with what they call: what a layer's own operators took (self), and with the layers below
it (total), so that the roots sum to the time of all outermost operators. Device work belongs to the layer that launched
it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms import groupby, nesting
from perfkit_core.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.algorithms.trees import preorder
from perfkit_core.language.messages import message
from perfkit_core.model.columns import (
    CALLS,
    CPU,
    DEPTH,
    DEVICE,
    FIRST,
    FLOPS,
    HOST,
    NAME,
    ON_DEVICE,
    SELF_CPU,
    SELF_DEVICE,
    Share,
    added_by,
    count,
    description,
    duration,
    operations,
    share,
    size,
    text,
)
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.views.grouping import keys
from perfkit_core.views.merging import parents
from perfkit_core.views.modules import module_counts
from perfkit_core.views.modules.module_counts import Counts, ModuleTree, module_tree
from perfkit_core.views.select import selected
from perfkit_core.views.tables import Groups, group, integers, ratio

GROUPINGS: Final = ("phase", "step", "rank")
NO_MODULE: Final = "(no module)"
_SUMMED: Final = {
    "cpu_ns": ("total_cpu_ns", "self_cpu_ns"),
    "device_ns": ("total_device_ns", "self_device_ns"),
    "bytes": ("total_allocated_bytes", "self_allocated_bytes"),
    "flops": ("flops", "self_flops"),
}
"""What is counted → its columns with all below and without."""


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """The layers as a tree; see :data:`COLUMNS`. Unknown is NA. Grouped: a root for each group, its layers below."""
    keys(trace, request, np.empty(0, np.int64), GROUPINGS)  # refuses what it cannot be grouped by
    selected(trace, request)  # and steps and patterns that mean nothing
    tree = module_tree(trace)
    if not len(tree):
        return pd.DataFrame(columns=list(_ORDER))
    counts = module_counts.counts(trace, request, tree)
    rows = np.flatnonzero(counts.counted)
    if not request.by:
        return _finished(_layers(tree, counts, rows))
    groups = group(keys(trace, request, rows, GROUPINGS))
    mine = groupby.parts(groups.code, len(groups))
    parts = [_grouped(tree, counts, rows[mine[number]], groups, number) for number in _in_order(groups)]
    return _finished(pd.concat(parts, ignore_index=True) if parts else _layers(tree, counts, rows))


def _layers(tree: ModuleTree, counts: Counts, rows: IntArray) -> pd.DataFrame:
    """The rows of the tree from some events, the costliest sibling first, what is in no layer last."""
    parent = np.append(tree.parent, NO_ROW)
    node = np.where(counts.node[rows] == NO_ROW, len(tree), counts.node[rows])
    own = {name: _sum(node, values[rows], len(parent)) for name, values in counts.values.items()}
    result = pd.DataFrame(
        {
            "depth": nesting.sum_down(parent, (parent != NO_ROW).astype(np.int64)),
            "name": pd.Series([*tree.name, NO_MODULE], dtype=object),
            "module": pd.Series([*tree.module, None], dtype=object),
            "class": pd.Series([*tree.class_name, None], dtype=object),
        }
    )
    for name, values in _numbers(parent, own, counts).items():
        result[name] = values
    for name, known in module_counts.parameters(tree).items():
        result[name] = known
    weight = nesting.sum_up(parent, own["device_ns"] if own["device_ns"].any() else own["cpu_ns"])
    order = preorder(parent, weight)
    outside = [len(tree)] if any(values[-1] for values in own.values()) else []
    return result.iloc[[*order[order != len(tree)], *outside]].reset_index(drop=True)


def _numbers(parent: IntArray, own: dict[str, IntArray], counts: Counts) -> dict[str, Any]:
    """The counted columns: NA where the recording cannot tell, calls also for what is in no layer."""
    columns: dict[str, Any] = {}
    for name, values in own.items():
        known = np.full(len(parent), name in counts.knows)
        if name in _SUMMED:
            total, itself = _SUMMED[name]
            columns[total] = integers(nesting.sum_up(parent, values), known)
            columns[itself] = integers(values, known)
        elif name == "occurrence":
            columns[name] = nesting.sum_up(parent, values)
        else:
            known[-1] = False
            columns[name] = integers(values, known)
    return columns


def _sum(node: IntArray, values: IntArray, count: int) -> IntArray:
    total = np.zeros(count, np.int64)
    np.add.at(total, node, values)
    return total


def _grouped(tree: ModuleTree, counts: Counts, rows: IntArray, groups: Groups, number: int) -> pd.DataFrame:
    """The layers of one group, made of its rows, below a root of its name."""
    layers = _layers(tree, counts, rows)
    roots = layers[layers["depth"] == 0]
    values = groups.keys.iloc[number].to_dict()
    root: dict[str, Any] = {"depth": 0, "name": " · ".join(_shown(str(name), one) for name, one in values.items())}
    for total, itself in _SUMMED.values():
        root[total] = roots[total].sum(min_count=1)
        root[itself] = 0 if roots[itself].notna().any() else pd.NA
    root["occurrence"] = roots["occurrence"].sum()
    layers["depth"] += 1
    return pd.concat([pd.DataFrame([root]).astype(layers.dtypes[list(root)].to_dict()), layers], ignore_index=True)


def _shown(grouping: str, value: Any) -> str:
    if pd.isna(value):
        return f"no {grouping}"
    return str(value) if grouping == "phase" else f"{grouping} {value}"


def _in_order(groups: Groups) -> list[int]:
    return list(groups.keys.sort_values([str(name) for name in groups.keys], na_position="last").index)


def _finished(result: pd.DataFrame) -> pd.DataFrame:
    """The columns in their order, with shares of all that was counted."""
    for side in ("cpu", "device"):
        whole = result.loc[result["depth"] == 0, f"total_{side}_ns"].fillna(0).sum()
        for which in ("total", "self"):
            values = result[f"{which}_{side}_ns"]
            result[f"{which}_{side}_ratio"] = ratio(values.fillna(0), int(whole))
            result.loc[values.isna(), f"{which}_{side}_ratio"] = np.nan
    return result[list(_ORDER)]


def _in_order_of_cost(table: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    """The costliest layers first, by device time where there is any, and last what is in no layer; groups stay in the
    order in which they come."""
    weight = table["total_device_ns"].fillna(0).to_numpy(np.int64)
    if not weight.any():
        weight = table["total_cpu_ns"].fillna(0).to_numpy(np.int64)
    weight = np.where(table["name"] == NO_MODULE, -1, weight)
    depth = table["depth"].to_numpy(np.int64)
    if request.by:
        weight = np.where(depth == 0, -np.arange(len(table)), weight)
    return table.iloc[preorder(parents(depth), weight)].reset_index(drop=True)


COLUMNS: Final = (
    DEPTH,
    replace(NAME, description="own part of the path"),
    *added_by(GROUPINGS),
    text("class", "Class", merge=FIRST),
    replace(CALLS, description="forward"),
    count("backward_calls", "Backward calls", exact=True, per_step=True),
    duration("call_ns", "Call", per_step=True, description="forward calls from begin to end, with all that they do"),
    replace(CPU[0], own="self_cpu_ns", description="of operators, with the layers below"),
    share("total_cpu_ratio", "Total CPU", Share("total_cpu_ns"), place=HOST, own="self_cpu_ratio"),
    SELF_CPU,
    share("self_cpu_ratio", "Self CPU", Share("self_cpu_ns", of="total_cpu_ns"), place=HOST),
    replace(ON_DEVICE[0], own="self_device_ns"),
    share("total_device_ratio", "Total device", Share("total_device_ns"), place=DEVICE, own="self_device_ratio"),
    SELF_DEVICE,
    share("self_device_ratio", "Self device", Share("self_device_ns", of="total_device_ns"), place=DEVICE),
    count("parameters", "Parameters", merge=FIRST, own="self_parameters", description="elements, with all below"),
    count("self_parameters", "Self parameters", merge=FIRST),
    size("parameter_bytes", "Parameter", merge=FIRST, description="with all below"),
    replace(FLOPS, own="self_flops", description="with all below"),
    operations("self_flops", "Self FLOPs", per_step=True),
    size("total_allocated_bytes", "Total allocated", per_step=True, own="self_allocated_bytes"),
    size("self_allocated_bytes", "Self allocated", per_step=True),
    count("occurrence", "Operators", per_step=True, description="outermost operators, with all below"),
    description("module", "Module", merge=FIRST, description="the path; none for what is in no layer"),
)
_ORDER: Final = tuple(known.name for known in COLUMNS if not known.by)

VIEW = View(
    name="modules",
    title="Layers",
    description="host time, device time, parameters and FLOPs of each layer of the model, with the layers below it",
    table=table,
    columns=COLUMNS,
    groupings=GROUPINGS,
    explain_empty=lambda trace: message(
        "no calls of layers were recorded: label them with annotate(model), or record Python stacks"
    ),
    reduction=MergedRows(finish=_in_order_of_cost),
)
