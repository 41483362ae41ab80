"""The layers of a model: parameters, shapes, FLOPs, where they are. What ``describe`` returns and a recording keeps.

Parameters are counted once: a tensor that several layers share belongs to the first of them. FLOPs of a layer without
its children are unknown where neither a counter nor a formula tells them; sums count what is known.

What is seen of the calls of layers while a profiler runs: how often each layer was called with which tensors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.model.meta import TraceMeta

_DEEPEST: Final = 4
"""Levels of lists and dictionaries in which tensors are looked for."""


class TensorSpec(msgspec.Struct, frozen=True):
    """Shape of a tensor, and its type in the framework's own words."""

    shape: tuple[int, ...]
    dtype: str


class Signature(NamedTuple):
    """Tensors in and out of a call. ``input_gradient``, ``weight_gradient``: what its backward pass will compute."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    input_gradient: bool = False
    weight_gradient: bool = False


class Flops(NamedTuple):
    """Of one call, without its children: forward, and backward as far as gradients are wanted; None: unknown."""

    forward: int | None
    backward: int | None


def products(call: Signature, weights: int, activations: int = 0) -> Flops:
    """FLOPs of a call whose forward pass multiplies inputs with ``weights``, and inputs with inputs: the backward pass
    computes each product once more for each factor that wants a gradient."""
    inner = call.input_gradient or call.weight_gradient
    return Flops(
        weights + activations, weights * (call.input_gradient + call.weight_gradient) + 2 * activations * inner
    )


class CallLog:
    """Counts calls by layer path and signature. Not locked: a race of threads can lose a count, nothing else."""

    def __init__(self) -> None:
        self.calls: dict[str, Counter[Signature]] = {}

    def add(self, path: str, signature: Signature) -> None:
        """One more call."""
        found = self.calls.get(path)
        if found is None:
            found = self.calls[path] = Counter()
        found[signature] += 1

    def take(self) -> dict[str, Counter[Signature]]:
        """All calls so far; the log starts again from nothing."""
        calls, self.calls = self.calls, {}
        return calls


def seen(calls: Counter[Signature], flops: Callable[[Signature], Flops]) -> dict[str, Any]:
    """The fields of an :class:`~perfkit_core.model.architecture.Layer` that calls tell; ``flops`` of one such call."""
    if not calls:
        return {}
    last = next(reversed(calls))
    each = [(_known(flops, signature), count) for signature, count in calls.items()]
    return {
        "calls": calls.total(),
        "inputs": last.inputs,
        "outputs": last.outputs,
        "flops": _sum([(one.forward, count) for one, count in each]),
        "backward_flops": _sum([(one.backward, count) for one, count in each]),
    }


def _known(flops: Callable[[Signature], Flops], signature: Signature) -> Flops:
    try:
        return flops(signature)
    except Exception:  # a subclass that is called in another way than the layer that the formula is for
        return Flops(None, None)


def _sum(counted: list[tuple[int | None, int]]) -> int | None:
    known = [(value, count) for value, count in counted if value is not None]
    return sum(value * count for value, count in known) if len(known) == len(counted) else None


def tensors(value: Any, kind: type) -> list[Any]:
    """The tensors (of class ``kind``) that a layer takes or returns: itself, or in tuples, lists and dictionaries."""
    found: list[Any] = []
    _collect(value, kind, _DEEPEST, found)
    return found


def _collect(value: Any, kind: type, depth: int, found: list[Any]) -> None:
    if isinstance(value, kind):
        found.append(value)
    elif depth and isinstance(value, (tuple, list)):
        for item in value:
            _collect(item, kind, depth - 1, found)
    elif depth and isinstance(value, dict):
        for item in value.values():
            _collect(item, kind, depth - 1, found)


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
        """A DataFrame, one row a layer, as :func:`perfkit_core.pages.architecture.table`."""
        from perfkit_core.pages.architecture import table

        return table(self)

    def __str__(self) -> str:
        from perfkit_core.pages.architecture import text

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
