"""The layers of a model: their parameters, shapes, FLOPs, devices and recorded calls.

A tensor that several layers share is counted in the first of these layers. A layer's FLOPs exclude its children. A
layer's FLOPs are unknown if perfkit has neither a counter nor a formula for it. Sums skip unknown values.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.base.language.units import counted
from perfkit_core.trace.model.meta import TraceMeta

_DEEPEST: Final = 4
"""How many levels of nested lists and dictionaries are searched for tensors."""


class TensorSpec(msgspec.Struct, frozen=True):
    shape: tuple[int, ...]
    dtype: str


class Signature(NamedTuple):
    """Input and output tensors of a call, which inputs have gradients, and whether the weights have gradients."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    input_gradients: tuple[bool, ...] = ()
    weight_gradient: bool = False

    @property
    def input_gradient(self) -> bool:
        return any(self.input_gradients)

    def gradient(self, number: int) -> bool:
        """Return whether an input has a gradient. False for an input that the call does not have."""
        return number < len(self.input_gradients) and self.input_gradients[number]


class Flops(NamedTuple):
    """FLOPs of one call without its children, None if unknown. ``backward`` counts only gradients that are needed."""

    forward: int | None
    backward: int | None


class CallLog:
    """Counts of calls by layer path and signature. It has no lock: a race between threads can only lose a count."""

    def __init__(self) -> None:
        self.calls: defaultdict[str, Counter[Signature]] = defaultdict(Counter)

    def add(self, path: str, signature: Signature) -> None:
        self.calls[path][signature] += 1

    def take(self) -> dict[str, Counter[Signature]]:
        calls, self.calls = self.calls, defaultdict(Counter)
        return calls


def tensors(value: Any, kind: type, depth: int = _DEEPEST) -> list[Any]:
    """Return the tensors (instances of ``kind``) in an argument or result, including tensors in nested containers."""
    if isinstance(value, kind):
        return [value]
    if not depth or not isinstance(value, (tuple, list, dict)):
        return []
    items = value.values() if isinstance(value, dict) else value
    return [tensor for item in items for tensor in tensors(item, kind, depth - 1)]


EXTRA: Final = "modules"
SEPARATOR: Final = "."


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter. ``shape`` and ``bytes`` are None while a lazy layer is uninitialised. ``tied_to`` names an earlier
    parameter that is the same tensor."""

    name: str
    shape: tuple[int, ...] | None
    dtype: str
    bytes: int | None
    trainable: bool = True
    tied_to: str | None = None


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """A layer. Parameters and FLOPs exclude child layers. FLOPs are sums over all recorded calls, None if unknown."""

    path: str  # path of the layer as in labels; a model itself has the path "", or its name and a dot
    class_name: str
    parameters: tuple[Parameter, ...] = ()
    device: str | None = None
    calls: int | None = None  # number of recorded calls
    inputs: tuple[TensorSpec, ...] = ()  # input tensors of the last recorded call
    outputs: tuple[TensorSpec, ...] = ()  # output tensors of the last recorded call
    flops: int | None = None
    backward_flops: int | None = None

    def count(self) -> int | None:
        """Return the number of elements of all untied parameters, or None for an uninitialised lazy layer."""
        shapes = [p.shape for p in self.parameters if p.tied_to is None]
        return None if None in shapes else sum(int(np.prod(s, dtype=np.int64)) for s in shapes if s is not None)

    def trainable(self) -> int:
        shapes = [p.shape for p in self.parameters if p.tied_to is None and p.trainable and p.shape is not None]
        return sum(int(np.prod(shape, dtype=np.int64)) for shape in shapes)

    def size(self) -> int:
        return sum(p.bytes or 0 for p in self.parameters if p.tied_to is None)


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model as a tree of layers, parents before children."""

    name: str
    framework: str
    layers: tuple[Layer, ...]

    def parents(self) -> IntArray:
        return path_parents([layer.path for layer in self.layers])

    def __repr__(self) -> str:
        return f"<Architecture {self.name}, {counted(len(self.layers), 'layer')}, {self.framework}>"


def path_parents(paths: Sequence[str]) -> IntArray:
    """Return the position of each path's parent in ``paths`` (-1 if none), shape (paths,). For example, the parent of
    ``encoder.0.linear`` is ``encoder.0``, or ``encoder`` if ``paths`` does not contain ``encoder.0``. The last choice
    is "", the path of a model without a name."""
    position = {path: number for number, path in enumerate(paths)} | {
        path.removesuffix(SEPARATOR): number for number, path in enumerate(paths) if path.endswith(SEPARATOR)
    }
    parents = np.full(len(paths), -1, np.int64)
    for number, path in enumerate(paths):
        while path and not path.endswith(SEPARATOR):
            path = path.rpartition(SEPARATOR)[0]
            if path in position:
                parents[number] = position[path]
                break
    return parents


def to_extra(models: Sequence[Architecture]) -> dict[str, Any]:
    return {EXTRA: [msgspec.to_builtins(model) for model in models]} if models else {}


def from_meta(meta: TraceMeta) -> tuple[Architecture, ...]:
    try:
        return tuple(msgspec.convert(meta.extra.get(EXTRA, []), list[Architecture]))
    except msgspec.ValidationError:  # another tool wrote a field "modules"
        return ()
