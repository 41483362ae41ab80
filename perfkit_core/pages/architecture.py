"""The architecture of a model as a table, as a report, and as an object that can be printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import nesting
from perfkit_core.base.language.messages import mark, say
from perfkit_core.trace.model.architecture import Architecture, Layer, TensorSpec
from perfkit_core.trace.model.columns import DEPTH, MODULE, NAME, count, description, operations, share, size
from perfkit_core.trace.model.report_data import Fact, Report, Section, Source

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
    count("parameters", "Parameters", "number of elements, including the layers below"),
    share("parameters_ratio", "Parameters"),
    count("self_parameters", "Self parameters"),
    share("self_parameters_ratio", "Self parameters"),
    count("trainable_parameters", "Trainable parameters"),
    size("parameter_bytes", "Parameter"),
    count("calls", "Calls"),
    operations("flops", "FLOPs", "sum of the known FLOPs of all calls, including the layers below"),
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


def table(model: Architecture) -> pd.DataFrame:
    """Return a tree of layers in model order. Its columns are :data:`COLUMNS`. Ratios refer to the whole model."""
    parent, layers = model.parents(), model.layers
    above = [layers[at].path if at >= 0 else "" for at in parent]
    names = [layer.path.removeprefix(path).strip(".") for layer, path in zip(layers, above, strict=True)]
    columns: dict[str, Any] = {
        "depth": nesting.sum_down(parent, (parent >= 0).astype(np.int64)),
        "name": _texts(name or model.name for name in names),
        "module": _texts(layer.path.rstrip(".") or model.name for layer in layers),
        "class": _texts(layer.class_name for layer in layers),
        "device": _texts(layer.device for layer in layers),
    }
    for name, number in _COUNTED.items():
        values = [number(layer) for layer in layers]
        known_layers = nesting.sum_up(parent, np.array([value is not None for value in values], np.int64))
        sums = nesting.sum_up(parent, np.array([value or 0 for value in values], np.int64))
        # FLOPs are summed over all known values. Other sums are NA if the value of any layer below is unknown.
        needed = 1 if name.endswith("flops") else nesting.sum_up(parent, np.ones(len(values), np.int64))
        total = pd.Series(pd.arrays.IntegerArray(sums, known_layers < needed))
        columns[name] = total
        if name in ("parameters", "flops"):
            of_model = int(total[parent < 0].fillna(0).sum())
            of_layer = pd.Series(pd.array(values, "Int64"))
            columns |= {f"{name}_ratio": _share(total, of_model), f"self_{name}": of_layer}
            columns[f"self_{name}_ratio"] = _share(of_layer, of_model)
        if name == "parameter_bytes":
            columns["calls"] = pd.array([layer.calls for layer in layers], "Int64")
    tensors = [layer.parameters for layer in layers]
    columns["inputs"] = _texts(_shapes(layer.inputs) for layer in layers)
    columns["outputs"] = _texts(_shapes(layer.outputs) for layer in layers)
    columns["shapes"] = _texts(", ".join(f"{p.name} {_shape(p.shape)}" for p in layer) or None for layer in tensors)
    columns["dtype"] = _texts(", ".join(dict.fromkeys(p.dtype for p in layer)) or None for layer in tensors)
    ties = ([f"{p.name} = {p.tied_to}" for p in layer if p.tied_to] for layer in tensors)
    columns["tied"] = _texts(", ".join(texts) or None for texts in ties)
    return pd.DataFrame(columns)


def _texts(values: Iterable[str | None]) -> pd.Series:
    return pd.Series(list(values), dtype=object)


def _share(values: pd.Series[int], total: int) -> pd.Series[float]:
    return values.astype("Float64") / total if total else values.astype("Float64") * 0


def _shapes(tensors: tuple[TensorSpec, ...]) -> str | None:
    return ", ".join(f"{_shape(tensor.shape)} {tensor.dtype}" for tensor in tensors) or None


def _shape(shape: tuple[int, ...] | None) -> str:
    return "?" if shape is None else "×".join(map(str, shape)) or "scalar"


def report(model: Architecture) -> Report:
    layers = table(model)
    # A column with a single value is shown as a fact instead. Redundant and empty columns are left out.
    dropped = ["module", *(name for name in ("device", "dtype") if layers[name].nunique() == 1)]
    dropped += [str(name) for name in layers.columns if layers[name].isna().all()]
    if (layers["trainable_parameters"] == layers["parameters"]).all():
        dropped.append("trainable_parameters")
    notes = [say("The numbers of a layer include the layers below it, except in the columns titled Self.")]
    tied = sum(p.tied_to is not None for layer in model.layers for p in layer.parameters)
    if tied == 1:
        notes.append(say("1 tied tensor is counted once, in the first layer that has it."))
    elif tied:
        notes.append(say("{count} tied tensors are counted once each, in the first layer that has them.", count=tied))
    if any(layer.calls for layer in model.layers):
        notes.append(say("FLOPs only include matrix products and convolutions with a known formula or counter."))
    section = Section(
        "architecture", say("Architecture"), layers.drop(columns=dict.fromkeys(dropped)), note=" ".join(notes),
        empty=say("the model has no layers"), columns=COLUMNS,
    )  # fmt: skip
    counted = Fact(str(len(model.layers)), say("{count} layers", count=len(model.layers)))
    facts = {mark("Framework"): Fact(model.framework), mark("Layers"): counted}
    devices = {layer.device for layer in model.layers if layer.device is not None}
    types = {p.dtype for layer in model.layers for p in layer.parameters}
    facts |= {name: Fact(next(iter(values))) for name, values in ((mark("Device"), devices), (mark("Type"), types))
              if len(values) == 1}  # fmt: skip
    title = say("Architecture of {name}", name=model.name)
    return Report(title, (Source(model.name, model.name, (), facts),), (section,))


class PrintedArchitecture(Architecture):
    """The result of ``describe``: an architecture that ``print`` shows as a table."""

    __slots__ = ()

    def __str__(self) -> str:
        from perfkit_core.output.renderers.text import render

        return render(report(self))

    def to_pandas(self) -> pd.DataFrame:
        """Return the table of :func:`table`, with one row per layer."""
        return table(self)
