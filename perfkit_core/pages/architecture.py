"""A model's architecture as a table and as text, with the renderers of every other report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.language.messages import mark, say
from perfkit_core.model.architecture import Architecture, Layer, TensorSpec
from perfkit_core.model.columns import DEPTH, MODULE, NAME, count, description, operations, share, size
from perfkit_core.report.model import Report, Section, Source

_COUNTED: dict[str, Callable[[Layer], int | None]] = {
    "parameters": Layer.count,
    "trainable_parameters": Layer.trainable,
    "parameter_bytes": Layer.size,
    "flops": lambda layer: layer.flops,
    "backward_flops": lambda layer: layer.backward_flops,
}
COLUMNS: Final = (
    DEPTH,
    NAME,
    MODULE,
    description("class", "Class"),
    description("device", "Device"),
    count("parameters", "Parameters", description="elements, with all below"),
    share("parameters_ratio", "Parameters"),
    count("self_parameters", "Self parameters"),
    share("self_parameters_ratio", "Self parameters"),
    count("trainable_parameters", "Trainable parameters"),
    size("parameter_bytes", "Parameter"),
    count("calls", "Calls"),
    operations("flops", "FLOPs", description="of these calls, with all below; a sum of what is known"),
    share("flops_ratio", "FLOPs"),
    operations("self_flops", "Self FLOPs"),
    share("self_flops_ratio", "Self FLOPs"),
    operations("backward_flops", "Backward FLOPs"),
    description("inputs", "Inputs"),
    description("outputs", "Outputs"),
    description("shapes", "Shapes"),
    description("dtype", "Dtype"),
    description("tied", "Tied"),
)


class PrintedArchitecture(Architecture):
    """An architecture that ``describe`` returns: ``str()`` prints it, ``to_pandas()`` returns it as a table."""

    __slots__ = ()

    def __str__(self) -> str:
        return text(self)

    def to_pandas(self) -> pd.DataFrame:
        """A DataFrame, one row a layer, as :func:`table`."""
        return table(self)


def table(model: Architecture) -> pd.DataFrame:
    """The layers as a tree in the order of the model: see :data:`COLUMNS`. NA where unknown. The ratios are to the
    whole model. The path of the model itself is its name."""
    parent = model.parents()
    columns: dict[str, Any] = {}
    for name, own in _COUNTED.items():
        values = [own(layer) for layer in model.layers]
        total = _with_all_below(parent, values, partly=name.endswith("flops"))
        columns[name] = total
        if name in ("parameters", "flops"):
            whole = int(total[parent < 0].fillna(0).sum())
            mine = pd.Series(pd.array(values, "Int64"))
            columns |= {f"{name}_ratio": _share(total, whole), f"self_{name}": mine}
            columns[f"self_{name}_ratio"] = _share(mine, whole)
        if name == "parameter_bytes":
            columns["calls"] = pd.array([layer.calls for layer in model.layers], "Int64")
    texts = {name: pd.Series(values, dtype=object) for name, values in _texts(model).items()}
    return pd.concat([_names(model, parent), pd.DataFrame(columns | texts)], axis=1)


def report(model: Architecture) -> Report:
    """The architecture as a Report with one section, for every renderer."""
    found = _readable(table(model))
    note, empty = " ".join(_notes(model)), say("the model has no layers")
    section = Section("architecture", say("Architecture"), found, note=note, empty=empty, columns=COLUMNS)
    layers = say("{count} layers", count=len(model.layers))
    facts = {mark("Framework"): model.framework, mark("Layers"): layers} | _same_everywhere(model)
    title = say("Architecture of {name}", name=model.name)
    return Report(title, (Source(model.name, model.name, (), facts),), (section,))


def _notes(model: Architecture) -> Iterator[str]:
    yield say("Each row with all layers below it; self: without them.")
    tied = sum(p.tied_to is not None for layer in model.layers for p in layer.parameters)
    if tied == 1:
        yield say("1 tied tensor is counted once, where it comes first.")
    elif tied:
        yield say("{count} tied tensors are counted once, where it comes first.", count=tied)
    if any(layer.calls for layer in model.layers):
        yield say("FLOPs are those of matrix products and convolutions, where a formula or counter knows them.")


def _readable(found: pd.DataFrame) -> pd.DataFrame:
    """Without what says the same in every row, or what the rest tells."""
    same = [name for name in ("device", "dtype") if found[name].nunique() == 1]
    unknown = [str(name) for name in found.columns if found[name].isna().all()]
    if (found["trainable_parameters"] == found["parameters"]).all():
        same.append("trainable_parameters")
    return found.drop(columns=dict.fromkeys(["module", *same, *unknown]))


def _same_everywhere(model: Architecture) -> dict[str, str]:
    places = {layer.device for layer in model.layers if layer.device is not None}
    types = {p.dtype for layer in model.layers for p in layer.parameters}
    known = {mark("Device"): places, mark("Type"): types}
    return {name: next(iter(found)) for name, found in known.items() if len(found) == 1}


def text(model: Architecture) -> str:
    """The report as plain text."""
    from perfkit_core.renderers.text import render

    return render(report(model))


def _names(model: Architecture, parent: IntArray) -> pd.DataFrame:
    above = [model.layers[at].path if at >= 0 else "" for at in parent]
    names = [layer.path.removeprefix(path).strip(".") for layer, path in zip(model.layers, above, strict=True)]
    return pd.DataFrame(
        {
            "depth": nesting.sum_down(parent, (parent >= 0).astype(np.int64)),
            "name": pd.Series([name or model.name for name in names], dtype=object),
            "module": pd.Series([layer.path.rstrip(".") or model.name for layer in model.layers], dtype=object),
            "class": pd.Series([layer.class_name for layer in model.layers], dtype=object),
            "device": pd.Series([layer.device for layer in model.layers], dtype=object),
        }
    )


def _with_all_below(parent: IntArray, values: list[int | None], partly: bool) -> pd.Series[int]:
    """Sums; NA where something in them is unknown, or with ``partly`` only where all of it is."""
    known = nesting.sum_up(parent, np.array([value is not None for value in values], np.int64))
    total = nesting.sum_up(parent, np.array([value or 0 for value in values], np.int64))
    enough = 1 if partly else nesting.sum_up(parent, np.ones(len(values), np.int64))
    return pd.Series(pd.arrays.IntegerArray(total, known < enough))


def _share(values: pd.Series[int], whole: int) -> pd.Series[float]:
    return values.astype("Float64") / whole if whole else values.astype("Float64") * 0


def _texts(model: Architecture) -> dict[str, list[str | None]]:
    layers = model.layers
    return {
        "inputs": [_shapes(layer.inputs) for layer in layers],
        "outputs": [_shapes(layer.outputs) for layer in layers],
        "shapes": [", ".join(f"{p.name} {_shape(p.shape)}" for p in layer.parameters) or None for layer in layers],
        "dtype": [", ".join(dict.fromkeys(p.dtype for p in layer.parameters)) or None for layer in layers],
        "tied": [
            ", ".join(f"{p.name} = {p.tied_to}" for p in layer.parameters if p.tied_to) or None for layer in layers
        ],
    }


def _shapes(tensors: tuple[TensorSpec, ...]) -> str | None:
    return ", ".join(f"{_shape(one.shape)} {one.dtype}" for one in tensors) or None


def _shape(shape: tuple[int, ...] | None) -> str:
    return "?" if shape is None else "×".join(map(str, shape)) or "scalar"
