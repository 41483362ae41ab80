"""The layers of a model: parameters, shapes, FLOPs, where they are. What ``describe`` returns and a recording keeps.

Parameters are counted once: a tensor that several layers share belongs to the first of them. FLOPs of a layer without
its children are unknown where neither a counter nor a formula tells them; sums count what is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np

from perfkit_core.layers.layer_calls import TensorSpec
from perfkit_core.trace import IntArray, TraceMeta

EXTRA: Final = "modules"
"""Key of ``TraceMeta.extra`` under which a handler keeps the annotated models."""
SEPARATOR: Final = "."
"""Between the parts of a layer's path."""


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor that a layer owns. ``shape`` and ``bytes`` are None until a lazy layer knows them; ``tied_to`` names the
    parameter that it is the same tensor as."""

    name: str
    shape: tuple[int, ...] | None
    dtype: str
    bytes: int | None
    trainable: bool = True
    tied_to: str | None = None


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """A layer without its children. ``path`` as in labels: "" for the model itself, its name and a dot if it has one.
    ``calls`` were seen, with the tensors of the
    last of them; ``flops`` and ``backward_flops`` are of all these calls, None where unknown."""

    path: str
    class_name: str
    parameters: tuple[Parameter, ...] = ()
    device: str | None = None
    calls: int | None = None
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    flops: int | None = None
    backward_flops: int | None = None

    def count(self) -> int | None:
        """Number of elements of the own parameters, tied ones left out; None for a lazy layer that was not called."""
        own = [p.shape for p in self.parameters if p.tied_to is None]
        return None if None in own else sum(int(np.prod(shape, dtype=np.int64)) for shape in own if shape is not None)

    def trainable(self) -> int:
        """As :meth:`count`, of those that are trained."""
        own = [p.shape for p in self.parameters if p.tied_to is None and p.trainable and p.shape is not None]
        return sum(int(np.prod(shape, dtype=np.int64)) for shape in own)

    def size(self) -> int:
        """Bytes of the own parameters, tied ones left out."""
        return sum(p.bytes or 0 for p in self.parameters if p.tied_to is None)


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model as a tree of layers, each before its children; ``str()`` prints it."""

    name: str
    framework: str
    layers: tuple[Layer, ...]

    def parents(self) -> IntArray:
        """Position of the layer around each layer (-1: none), shape (layers,)."""
        return path_parents([layer.path for layer in self.layers])

    def to_pandas(self) -> Any:
        """A DataFrame, one row a layer, as :func:`perfkit_core.report.describe.table`."""
        from perfkit_core.report.describe import table

        return table(self)

    def __str__(self) -> str:
        from perfkit_core.report.describe import text

        return text(self)

    def __repr__(self) -> str:
        return f"Architecture({self.name!r}, {len(self.layers)} layers)"


def path_parents(paths: Sequence[str]) -> IntArray:
    """Position of the longest path that each path continues (-1: none), shape (paths,). "" is above all that continue
    no model with a name."""
    position = {path: number for number, path in enumerate(paths)} | {
        path.removesuffix(SEPARATOR): number for number, path in enumerate(paths) if path.endswith(SEPARATOR)
    }
    return np.array([_above(path, position) for path in paths], np.int64)


def _above(path: str, position: dict[str, int]) -> int:
    while path and not path.endswith(SEPARATOR):
        path = path.rpartition(SEPARATOR)[0]
        if path in position:
            return position[path]
    return -1


def to_extra(models: Sequence[Architecture]) -> dict[str, Any]:
    """What a handler adds to ``TraceMeta.extra``; nothing where no model is annotated."""
    return {EXTRA: [msgspec.to_builtins(model) for model in models]} if models else {}


def from_meta(meta: TraceMeta) -> tuple[Architecture, ...]:
    """The models that were annotated while the trace was recorded; none where the trace comes from another file."""
    try:
        return tuple(msgspec.convert(meta.extra.get(EXTRA, []), list[Architecture]))
    except msgspec.ValidationError:  # another tool's "modules"
        return ()
