"""What did each layer of the model cost? A tree of layers, with what is in no layer in a row of its own.

Host time is that of operators, with what they call: what a layer's own operators took (self), and with the layers below
it (total), so that the roots sum to the time of all outermost operators. Device work belongs to the layer that launched
it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms import groupby, nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.algorithms.trees import preorder
from perfkit_core.assembly import layers as modules
from perfkit_core.assembly.labels import ModuleLabel, parse_module_label
from perfkit_core.assembly.layers import CALL_SEPARATOR
from perfkit_core.language.messages import message
from perfkit_core.model.architecture import Architecture, from_meta, path_parents
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
from perfkit_core.model.schema import DEVICE_WORK, FORWARD, OPERATOR_KINDS
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.views.grouping import keys
from perfkit_core.views.memory.events import memory_events
from perfkit_core.views.operators.calls import on_device
from perfkit_core.views.select import in_steps, selected
from perfkit_core.views.tables import Groups, group, integers, parents, ratio, rounded_division

_UNKNOWN = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Counts:
    """``node``: layer of each event (-1: none); ``counted``: whether it adds anything; then what it adds, all of shape
    (rows,). ``knows``: the columns that the recording can tell at all."""

    node: IntArray
    counted: BoolArray
    values: dict[str, IntArray]
    knows: frozenset[str]


def event_counts(trace: Trace, request: ViewRequest, tree: ModuleTree) -> Counts:
    """What the events that the request counts add. Raises UsageError."""
    node = tree.nodes(trace)
    chosen = selected(trace, replace(request, device=None)) & on_device(trace, request.device)
    operator = chosen & trace.host & trace.rows("kind", *OPERATOR_KINDS)
    around = nesting.nearest_on_path(trace.ints("parent"), operator)
    inside = around != NO_ROW
    call, mark = _calls(trace, request, node)
    values = {
        "calls": call.astype(np.int64),
        "backward_calls": mark.astype(np.int64),
        "call_ns": np.where(call, trace.ints("dur_ns"), 0),
        "cpu_ns": np.where(inside, np.maximum(trace.ints("self_ns"), 0), 0),
        "device_ns": _device(trace, request, inside),
        "bytes": _allocated(trace, request, inside),
        "flops": _flops(trace, tree, node, operator, call, mark),
        "occurrence": (operator & ~np.append(inside, False)[trace.ints("parent")]).astype(np.int64),
    }
    counted = np.any([value != 0 for value in values.values()], axis=0)
    return Counts(node, counted, values, _knows(trace, tree, mark))


def _calls(trace: Trace, request: ViewRequest, node: IntArray) -> tuple[BoolArray, BoolArray]:
    """Events that span the call of a layer, and those that mark its backward pass, in the wanted steps."""
    wanted = in_steps(trace, request) & trace.host & (node != NO_ROW)
    labels = modules.labelled(trace)
    if labels.known:
        return wanted & (labels.path >= 0), wanted & (labels.mark >= 0)
    return wanted & trace.rows("kind", FORWARD), np.zeros(len(trace), np.bool_)


def _filtered(trace: Trace, request: ViewRequest, by: IntArray, inside: BoolArray) -> BoolArray:
    """Events of the wanted steps that counted operators caused: ``by`` is the host event behind each."""
    wanted = in_steps(trace, request)
    if request.pattern is None and request.kind is None:
        return wanted
    caused: BoolArray = wanted & np.append(inside, False)[by]
    return caused


def _device(trace: Trace, request: ViewRequest, inside: BoolArray) -> IntArray:
    mine = trace.rows("kind", *DEVICE_WORK) & on_device(trace, request.device)
    mine &= _filtered(trace, request, trace.ints("launched_by"), inside)
    return np.where(mine, trace.ints("dur_ns"), 0)


def _allocated(trace: Trace, request: ViewRequest, inside: BoolArray) -> IntArray:
    """Bytes allocated, what the allocator itself reserves left out."""
    found = memory_events(trace)
    rows = found.row[~found.reserve & (found.change > 0)]
    result = np.zeros(len(trace), np.int64)
    wanted = _filtered(trace, request, trace.ints("parent"), inside) & on_device(trace, request.device)
    result[rows] = np.where(wanted, trace.ints("bytes", _UNKNOWN), 0)[rows]
    return result


def _flops(
    trace: Trace, tree: ModuleTree, node: IntArray, operator: BoolArray, call: BoolArray, mark: BoolArray
) -> IntArray:
    """Of each call by what the handler kept of its layer, which knows both passes; elsewhere as recorded with the
    operators (torch counts no backward pass of a convolution)."""
    recorded = trace.ints("flops", _UNKNOWN)
    forward, backward, known = _flops_of_calls(tree)
    by_layer = np.where(call, forward[node], 0) + np.where(mark, backward[node], 0)
    return by_layer + np.where(operator & (recorded != _UNKNOWN) & ~known[node], recorded, 0)


def _flops_of_calls(tree: ModuleTree) -> tuple[IntArray, IntArray, BoolArray]:
    """FLOPs of one call of each layer without those below, forward and backward, 0 where unknown, and where they are
    known; shape (layers + 1,), the last for none."""
    kept = {layer.path: layer for model in tree.architectures for layer in model.layers}
    layers = [kept.get(path) for path in tree.path]
    known = np.array([bool(layer and layer.flops is not None) for layer in layers] + [False], np.bool_)
    calls = np.array([layer.calls or 0 if layer else 0 for layer in layers] + [0], np.int64)
    forward = np.array([layer.flops or 0 if layer else 0 for layer in layers] + [0], np.int64)
    backward = np.array([layer.backward_flops or 0 if layer else 0 for layer in layers] + [0], np.int64)
    return rounded_division(forward, calls), rounded_division(backward, calls), known


def _knows(trace: Trace, tree: ModuleTree, mark: BoolArray) -> frozenset[str]:
    """The columns that the recording can tell."""
    counted = any(layer.flops is not None for model in tree.architectures for layer in model.layers)
    known = {
        "backward_calls": mark.any(),
        "device_ns": trace.rows("kind", *DEVICE_WORK).any(),
        "bytes": len(memory_events(trace).row) > 0,
        "flops": counted or (trace.ints("flops", _UNKNOWN) != _UNKNOWN).any(),
    }
    return frozenset({"calls", "call_ns", "cpu_ns", "occurrence", *(name for name, tells in known.items() if tells)})


def parameters(tree: ModuleTree) -> dict[str, pd.arrays.IntegerArray]:
    """Columns parameters, self_parameters and parameter_bytes of the layers, and of what is in none; NA where the
    handler kept nothing of a layer."""
    kept = {layer.path: layer for model in tree.architectures for layer in model.layers}
    layers = [kept.get(path) for path in tree.path]
    parent = np.append(tree.parent, NO_ROW)
    known = np.array([layer is not None for layer in layers] + [False], np.bool_)
    own = np.array([layer.count() or 0 if layer else 0 for layer in layers] + [0], np.int64)
    size = np.array([layer.size() if layer else 0 for layer in layers] + [0], np.int64)
    return {
        "parameters": integers(nesting.sum_up(parent, own), known),
        "self_parameters": integers(own, known),
        "parameter_bytes": integers(nesting.sum_up(parent, size), known),
    }


_INSTANCE: Final = re.compile(r"_\d+$")
"""What numbers the layers of a class, where a framework does that."""


@dataclass(frozen=True, slots=True)
class ModuleTree:
    """Parallel lists, an item a layer, parents first: ``module`` as in the column, ``name`` (its own part),
    ``class_name``, ``parent`` (-1: none). ``architectures`` are the models that the handler kept; ``path`` is that of a
    layer in them."""

    module: list[str]
    name: list[str]
    class_name: list[str]
    parent: IntArray
    path: list[str]
    architectures: tuple[Architecture, ...] = ()

    def __len__(self) -> int:
        return len(self.module)

    def nodes(self, trace: Trace) -> IntArray:
        """The layer of each event, -1 where it is in none, shape (rows,)."""
        position = {module: number for number, module in enumerate(self.module)}
        column = trace.codes("module")
        return column.lookup(np.array([position.get(value, NO_ROW) for value in column.values], np.int64), NO_ROW)


def module_tree(trace: Trace) -> ModuleTree:
    """The layers that a recording knows, from the module column and from what a handler kept of the models; without
    layers where none was recorded."""
    labels = [label for name in trace.codes("name").values if (label := parse_module_label(name))]
    if labels:
        return _of_labels(labels, from_meta(trace.meta))
    column = trace.codes("module")
    return _of_calls([column.values[code] for code in np.unique(column.codes[column.codes >= 0])])


def _of_labels(labels: list[ModuleLabel], kept: tuple[Architecture, ...]) -> ModuleTree:
    classes = {label.path: label.class_name for label in labels}
    classes |= {layer.path: layer.class_name for model in kept for layer in model.layers}
    paths = sorted(classes)
    parent = path_parents(paths)
    above = [paths[at] if at != NO_ROW else "" for at in parent]
    module = [ModuleLabel(path, classes[path]).module for path in paths]
    own = [path.removeprefix(whole).strip(".") for path, whole in zip(paths, above, strict=True)]
    names = [part or whole for part, whole in zip(own, module, strict=True)]
    return ModuleTree(module, names, [classes[path] for path in paths], parent, paths, kept)


def _of_calls(used: list[str]) -> ModuleTree:
    """Paths that were put together from the calls around; a call that only others were seen in is a layer, too."""
    whole = {CALL_SEPARATOR.join(parts[: n + 1]) for parts in _parts(used) for n in range(len(parts))}
    paths = sorted(whole, key=lambda path: path.split(CALL_SEPARATOR))
    position = {path: number for number, path in enumerate(paths)}
    parent = [position.get(path.rpartition(CALL_SEPARATOR)[0], NO_ROW) for path in paths]
    names = [path.rpartition(CALL_SEPARATOR)[2] for path in paths]
    return ModuleTree(paths, names, [_INSTANCE.sub("", name) for name in names], np.array(parent, np.int64), paths)


def _parts(paths: list[str]) -> list[list[str]]:
    return [path.split(CALL_SEPARATOR) for path in paths]


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
    counts = event_counts(trace, request, tree)
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
    for name, known in parameters(tree).items():
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
