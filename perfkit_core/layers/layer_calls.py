"""What is seen of the calls of layers while a profiler runs: how often each layer was called with which tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

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
    """The fields of an :class:`~perfkit_core.layers.architecture.Layer` that calls tell; ``flops`` of one such call."""
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
