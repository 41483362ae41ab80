"""What each event of a trace adds to its layer: time, calls, device work, memory, FLOPs."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.assembly import layers as modules
from perfkit_core.assembly.layer_labels import ModuleLabel, decode
from perfkit_core.assembly.layers import CALL_SEPARATOR
from perfkit_core.model.architecture import Architecture, from_meta, path_parents
from perfkit_core.model.schema import DEVICE_WORK, FORWARD, OPERATOR_KINDS
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.views.memory.events import memory_events
from perfkit_core.views.operators import worked_on
from perfkit_core.views.select import in_steps, selected
from perfkit_core.views.tables import integers, rounded_division

_UNKNOWN = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Counts:
    """``node``: layer of each event (-1: none); ``counted``: whether it adds anything; then what it adds, all of shape
    (rows,). ``knows``: the columns that the recording can tell at all."""

    node: IntArray
    counted: BoolArray
    values: dict[str, IntArray]
    knows: frozenset[str]


def counts(trace: Trace, request: ViewRequest, tree: ModuleTree) -> Counts:
    """What the events that the request counts add. Raises UsageError."""
    node = tree.nodes(trace)
    chosen = selected(trace, replace(request, device=None)) & worked_on.on_device(trace, request.device)
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
    mine = trace.rows("kind", *DEVICE_WORK) & worked_on.on_device(trace, request.device)
    mine &= _filtered(trace, request, trace.ints("launched_by"), inside)
    return np.where(mine, trace.ints("dur_ns"), 0)


def _allocated(trace: Trace, request: ViewRequest, inside: BoolArray) -> IntArray:
    """Bytes allocated, what the allocator itself reserves left out."""
    found = memory_events(trace)
    rows = found.row[~found.reserve & (found.change > 0)]
    result = np.zeros(len(trace), np.int64)
    wanted = _filtered(trace, request, trace.ints("parent"), inside) & worked_on.on_device(trace, request.device)
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
    labels = [label for name in trace.codes("name").values if (label := decode(name))]
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
