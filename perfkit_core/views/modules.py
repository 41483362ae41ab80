"""View ``modules``: the cost of each layer of the model as a tree, with a row for events in no layer.

The host time of a layer is the time of its operators and of all events inside them. Self time excludes the layers
below, total time includes them. The total times of the roots add up to the time of all outermost operators. Device work
belongs to the layer that launched it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import groupby, nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray, filled
from perfkit_core.base.algorithms.trees import parents, preorder
from perfkit_core.base.language.messages import mark, message
from perfkit_core.plugins.contracts import Merged, View, ViewRequest
from perfkit_core.trace.assembly.labels import ModuleLabel, parse_module_label
from perfkit_core.trace.assembly.layers import CALL_SEPARATOR, labelled
from perfkit_core.trace.model import architecture, columns, schema
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.columns import (
    CALLS,
    CPU,
    DEPTH,
    DEVICE,
    FIRST,
    FLOPS,
    HOST,
    NAME,
    ON_DEVICE,
    Share,
    share,
)
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.grouping import keys
from perfkit_core.views.memory.events import memory_events
from perfkit_core.views.operators.calls import on_device
from perfkit_core.views.operators.operator_work import UNKNOWN, operator_flops
from perfkit_core.views.select import in_steps, selected
from perfkit_core.views.tables import group, integers, ratio, rounded_division

GROUPINGS: Final = ("phase", "step", "rank")
NO_MODULE: Final = mark("(no module)")
_SUMMED: Final = {
    "cpu_ns": ("total_cpu_ns", "self_cpu_ns"),
    "device_ns": ("total_device_ns", "self_device_ns"),
    "bytes": ("total_allocated_bytes", "self_allocated_bytes"),
    "flops": ("flops", "self_flops"),
}
"""The quantities that are summed, each with two columns: with and without the layers below."""
_INSTANCE: Final = re.compile(r"_\d+$")
"""The number that some frameworks append to the class name of a layer, for example ``_3`` in ``Linear_3``."""
_UNKNOWN: Final = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class ModuleTree:
    """The layers of a model, parents first. Each list has one item per layer."""

    module: list[str]  # text that names the layer in the column `module` of the event table
    name: list[str]  # last part of the module path
    class_name: list[str]
    parent: IntArray  # index of the parent, -1 if none
    path: list[str]  # path of the layer in `architectures`
    architectures: tuple[architecture.Architecture, ...] = ()  # models that were stored when the run was recorded

    def __len__(self) -> int:
        return len(self.module)

    def nodes(self, trace: Trace) -> IntArray:
        """Return the index of each event's layer (-1 if none), shape (rows,)."""
        position = {module: number for number, module in enumerate(self.module)}
        column = trace.codes("module")
        return column.lookup(np.array([position.get(value, NO_ROW) for value in column.values], np.int64), NO_ROW)

    def stored(self) -> list[architecture.Layer | None]:
        """Return each layer's description in the stored models, or None. The last entry (None) is for other events."""
        layers = {layer.path: layer for model in self.architectures for layer in model.layers}
        return [*(layers.get(path) for path in self.path), None]


def module_tree(trace: Trace) -> ModuleTree:
    """Return the layers of the model. If ``annotate`` labelled events, the layers are those in the labels and in the
    models that were stored with the recording. Otherwise, they are those in the column ``module``."""
    labels = [label for name in trace.codes("name").values if (label := parse_module_label(name))]
    if labels:
        models = architecture.from_meta(trace.meta)
        classes = {label.path: label.class_name for label in labels}
        classes |= {layer.path: layer.class_name for model in models for layer in model.layers}
        paths = sorted(classes)
        parent = architecture.path_parents(paths)
        modules = [ModuleLabel(path, classes[path]).module for path in paths]
        names = []
        for path, module, above in zip(paths, modules, parent.tolist(), strict=True):
            names.append(path.removeprefix(paths[above] if above != NO_ROW else "").strip(".") or module)
        return ModuleTree(modules, names, [classes[path] for path in paths], parent, paths, models)
    # A path joins the names of the enclosing calls. Each prefix is a layer, even if no event has this path.
    column = trace.codes("module")
    calls = [column.values[code].split(CALL_SEPARATOR) for code in np.unique(column.codes[column.codes >= 0])]
    prefixes = {CALL_SEPARATOR.join(parts[: length + 1]) for parts in calls for length in range(len(parts))}
    paths = sorted(prefixes, key=lambda path: path.split(CALL_SEPARATOR))
    position = {path: number for number, path in enumerate(paths)}
    above = [position.get(path.rpartition(CALL_SEPARATOR)[0], NO_ROW) for path in paths]
    names = [path.rpartition(CALL_SEPARATOR)[2] for path in paths]
    return ModuleTree(paths, names, [_INSTANCE.sub("", name) for name in names], np.array(above, np.int64), paths)


@dataclass(frozen=True, slots=True)
class Counts:
    """The amount of each quantity (such as host time) that each event adds to its layer. Arrays have shape (rows,)."""

    node: IntArray  # index of the event's layer, -1 if none
    counted: BoolArray  # whether the event has a nonzero amount
    values: dict[str, IntArray]  # amounts by quantity, for example `cpu_ns`
    recorded: frozenset[str]  # quantities that were recorded
    flops_known: BoolArray  # whether the FLOPs of each layer are known; the last item is for events in no layer


def event_counts(trace: Trace, request: ViewRequest, tree: ModuleTree) -> Counts:
    """Return what the selected events add to their layers: calls, times, bytes and FLOPs. Raises UsageError."""
    node, parent = tree.nodes(trace), trace.ints("parent")
    in_request, in_device = in_steps(trace, request), on_device(trace, request.device)
    operator = selected(trace, replace(request, device=None)) & in_device
    operator &= trace.host & trace.rows("kind", *schema.OPERATOR_KINDS)
    inside = nesting.nearest_on_path(parent, operator) != NO_ROW
    inside_or_none = np.append(inside, False)  # the last item is for NO_ROW (-1)

    of_layer = in_request & trace.host & (node != NO_ROW)
    labels = labelled(trace)
    if labels.paths:
        call, mark = of_layer & (labels.path >= 0), of_layer & (labels.mark >= 0)
    else:
        call, mark = of_layer & trace.rows("kind", schema.FORWARD), np.zeros(len(trace), np.bool_)

    # if names or kinds are filtered, count only device work and memory of the selected operators
    filtered = request.pattern is not None or request.kind is not None
    work = trace.rows("kind", *schema.DEVICE_WORK) & in_device & in_request
    allocating = in_request & in_device
    if filtered:
        work &= inside_or_none[trace.ints("launched_by")]
        allocating &= inside_or_none[parent]
    memory = memory_events(trace)
    allocations = memory.row[~memory.reserve & (memory.change > 0)]
    allocated = filled(len(trace), 0)
    allocated[allocations] = np.where(allocating, trace.ints("bytes", _UNKNOWN), 0)[allocations]

    of_operators = operator_flops(trace, matrix_only=True)
    flops, flops_known = np.where(operator, np.maximum(of_operators, 0), 0), np.ones(len(tree) + 1, np.bool_)
    if not (of_operators != UNKNOWN).any():  # no shapes were recorded
        forward, backward, flops_known = _flops_of_calls(tree)
        flops = np.where(call, forward[node], 0) + np.where(mark, backward[node], 0)
    values = {
        "calls": call.astype(np.int64),
        "backward_calls": mark.astype(np.int64),
        "call_ns": np.where(call, trace.ints("dur_ns"), 0),
        "cpu_ns": np.where(inside, np.maximum(trace.ints("self_ns"), 0), 0),
        "device_ns": np.where(work, trace.ints("dur_ns"), 0),
        "bytes": allocated,
        "flops": flops,
        "occurrence": (operator & ~inside_or_none[parent]).astype(np.int64),
    }
    unrecorded = {
        "backward_calls": not mark.any(),
        "device_ns": not trace.rows("kind", *schema.DEVICE_WORK).any(),
        "bytes": not len(memory.row),
        "flops": not flops_known.any(),
    }
    counted = np.any([value != 0 for value in values.values()], axis=0)
    recorded = frozenset(name for name in values if not unrecorded.get(name, False))
    return Counts(node, counted, values, recorded, flops_known)


def _flops_of_calls(tree: ModuleTree) -> tuple[IntArray, IntArray, BoolArray]:
    """Return three arrays: the FLOPs of one forward call and of one backward call of each layer (0 if unknown), and
    whether they are known. The layers below are not included. The extra last item is for events in no layer."""
    layers = tree.stored()
    calls = np.array([layer.calls or 0 if layer else 0 for layer in layers], np.int64)
    forward = np.array([layer.flops or 0 if layer else 0 for layer in layers], np.int64)
    backward = np.array([layer.backward_flops or 0 if layer else 0 for layer in layers], np.int64)
    has_flops = np.array([layer is not None and layer.flops is not None for layer in layers], np.bool_)
    return rounded_division(forward, calls), rounded_division(backward, calls), has_flops


@once
def layer_flops(trace: Trace) -> IntArray:
    """Return the FLOPs of each call of a layer and of the beginning of each backward pass, as stored when the model was
    annotated. Other events have 0. The layers below are not included. Shape (rows,)."""
    tree, labels = module_tree(trace), labelled(trace)
    node = tree.nodes(trace)
    forward, backward, _ = _flops_of_calls(tree)
    call, mark = (trace.host & (node != NO_ROW) & (places >= 0) for places in (labels.path, labels.mark))
    return np.where(call, forward[node], 0) + np.where(mark, backward[node], 0)


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return the layers as a tree, with :data:`COLUMNS`. Unknown numbers are NA. Each group (``--by``) has a root."""
    selected(trace, request)  # raises UsageError for invalid steps and patterns
    tree = module_tree(trace)
    if not len(tree):
        return pd.DataFrame(columns=_ORDER)
    counts = event_counts(trace, request, tree)
    rows = np.flatnonzero(counts.counted)
    parts = []
    if request.by:
        groups = group(keys(trace, request, rows, GROUPINGS))
        of_group = groupby.parts(groups.code, len(groups))
        for number in groups.keys.sort_values([str(name) for name in groups.keys], na_position="last").index:
            layers = _layers(tree, counts, rows[of_group[number]])
            parts.append(_below_root(groups.keys.iloc[number].to_dict(), layers))
    result = pd.concat(parts, ignore_index=True) if parts else _layers(tree, counts, rows)
    for side in ("cpu", "device"):
        roots_ns = result.loc[result["depth"] == 0, f"total_{side}_ns"].fillna(0).sum()
        for part in ("total", "self"):
            values = result[f"{part}_{side}_ns"]
            result[f"{part}_{side}_ratio"] = ratio(values.fillna(0), int(roots_ns))
            result.loc[values.isna(), f"{part}_{side}_ratio"] = np.nan
    return result[_ORDER]


def _layers(tree: ModuleTree, counts: Counts, rows: IntArray) -> pd.DataFrame:
    """Return the tree of layers with sums over the events ``rows``. Siblings: sorted by cost, ``(no module)`` last."""
    parent = np.append(tree.parent, NO_ROW)
    node = np.where(counts.node[rows] == NO_ROW, len(tree), counts.node[rows])
    sums = {name: groupby.sums(node, len(parent), values[rows]) for name, values in counts.values.items()}
    cells: dict[str, Any] = {
        "depth": nesting.sum_down(parent, (parent != NO_ROW).astype(np.int64)),
        "name": pd.Series([*tree.name, NO_MODULE], dtype=object),
        "module": pd.Series([*tree.module, None], dtype=object),
        "class": pd.Series([*tree.class_name, None], dtype=object),
    }
    for name, values in sums.items():
        recorded = np.full(len(parent), name in counts.recorded)
        if name in _SUMMED:
            total, itself = _SUMMED[name]
            if name == "flops":
                recorded &= counts.flops_known
            cells[total] = integers(nesting.sum_up(parent, values), nesting.sum_up(parent, recorded) > 0)
            cells[itself] = integers(values, recorded)
        elif name == "occurrence":
            cells[name] = nesting.sum_up(parent, values)
        else:  # a number of calls; events in no layer have none (NA)
            recorded[-1] = False
            cells[name] = integers(values, recorded)
    layers = tree.stored()
    is_stored = np.array([layer is not None for layer in layers], np.bool_)
    elements = np.array([layer.count() or 0 if layer else 0 for layer in layers], np.int64)
    sizes = np.array([layer.size() if layer else 0 for layer in layers], np.int64)
    cells["parameters"] = integers(nesting.sum_up(parent, elements), is_stored)
    cells["self_parameters"] = integers(elements, is_stored)
    cells["parameter_bytes"] = integers(nesting.sum_up(parent, sizes), is_stored)
    order = preorder(parent, nesting.sum_up(parent, sums["device_ns"] if sums["device_ns"].any() else sums["cpu_ns"]))
    outside = [len(tree)] if any(values[-1] for values in sums.values()) else []
    return pd.DataFrame(cells).iloc[[*order[order != len(tree)], *outside]].reset_index(drop=True)


def _below_root(values: dict[Any, Any], layers: pd.DataFrame) -> pd.DataFrame:
    names = []
    for grouping, value in values.items():
        shown = value if grouping == "phase" else f"{grouping} {value}"
        names.append(f"no {grouping}" if pd.isna(value) else str(shown))
    roots = layers[layers["depth"] == 0]
    root: dict[str, Any] = {"depth": 0, "name": " · ".join(names)}
    for total, itself in _SUMMED.values():
        root[total] = roots[total].sum(min_count=1)
        root[itself] = 0 if roots[itself].notna().any() else pd.NA
    root["occurrence"] = roots["occurrence"].sum()
    layers["depth"] += 1
    return pd.concat([pd.DataFrame([root]).astype(layers.dtypes[list(root)].to_dict()), layers], ignore_index=True)


def _finish(table: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    """Sort the layers by device time, or by host time in a group without device time. Events in no layer are last in
    their group."""
    depth = table["depth"].to_numpy(np.int64)
    groups = np.cumsum(depth == 0) if request.by else np.zeros(len(table), np.int64)
    device, host = (table[name].fillna(0).to_numpy(np.int64) for name in ("total_device_ns", "total_cpu_ns"))
    weight = np.where(np.isin(groups, groups[device != 0]), device, host)
    weight = np.where(table["name"] == NO_MODULE, -1, weight)
    if request.by:
        weight = np.where(depth == 0, -np.arange(len(table)), weight)
    return table.iloc[preorder(parents(depth), weight)].reset_index(drop=True)


COLUMNS: Final = (
    DEPTH,
    replace(NAME, description="last part of the path"),
    *columns.added_by(GROUPINGS),
    columns.text("class", "Class", merge=FIRST),
    replace(CALLS, description="forward calls"),
    columns.count("backward_calls", "Backward calls", exact=True, over="steps"),
    columns.duration("call_ns", "Call", "duration of the forward calls", over="steps"),
    replace(CPU[0], own="self_cpu_ns", description="host time of operators, including the layers below"),
    share("total_cpu_ratio", "Total CPU", Share("total_cpu_ns"), place=HOST, own="self_cpu_ratio"),
    columns.SELF_CPU,
    share("self_cpu_ratio", "Self CPU", Share("self_cpu_ns", of="total_cpu_ns"), place=HOST),
    replace(ON_DEVICE[0], own="self_device_ns"),
    share("total_device_ratio", "Total device", Share("total_device_ns"), place=DEVICE, own="self_device_ratio"),
    columns.SELF_DEVICE,
    share("self_device_ratio", "Self device", Share("self_device_ns", of="total_device_ns"), place=DEVICE),
    columns.count("parameters", "Parameters", merge=FIRST, own="self_parameters"),
    columns.count("self_parameters", "Self parameters", merge=FIRST),
    columns.size("parameter_bytes", "Parameter", "size including the layers below", merge=FIRST),
    replace(FLOPS, own="self_flops", description="known FLOPs of matrix products, including the layers below"),
    columns.operations("self_flops", "Self FLOPs", over="steps"),
    columns.size("total_allocated_bytes", "Total allocated", over="steps", own="self_allocated_bytes"),
    columns.size("self_allocated_bytes", "Self allocated", over="steps"),
    columns.count("occurrence", "Operators", "number of outermost operators", over="steps"),
    replace(columns.MODULE, thing="module", merge=FIRST, description="module path; null for events in no layer"),
)
_ORDER: Final = [column.name for column in COLUMNS if not column.by]

VIEW = View(
    name="modules",
    title="Layers",
    description="host time, device time, parameters and FLOPs of each layer of the model, including the layers below",
    table=Merged(table, _finish),
    columns=COLUMNS,
    groupings=GROUPINGS,
    explain_empty=lambda trace: message(
        "no calls of layers were recorded: label the layers with annotate(model), or record Python stacks"
    ),
)
