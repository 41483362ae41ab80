"""The layers of a Paddle model: their paths and parameters, and what a run of the model shows of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import paddle

from perfkit_core.layers import layer_calls
from perfkit_core.layers.architecture import Layer, Parameter
from perfkit_core.layers.layer_calls import CallLog, Signature
from perfkit_paddle import layer_flops, layer_hooks, names

Named = tuple[str, Any]


def named(model: Any) -> Iterator[Named]:
    """Path and layer, the model first; what DataParallel wraps stands for it, a layer that occurs twice comes once."""
    found: dict[str, Any] = {}
    parallel = type(model).__name__ == "DataParallel"
    for path, layer in model.named_sublayers(include_self=True):
        parts = path.split(".") if path else []
        found[".".join(parts[1:] if parallel and parts[:1] == ["_layers"] else parts)] = layer
    yield from found.items()


def described(found: Sequence[Named], called: Mapping[str, Mapping[str, Any]]) -> Iterator[Layer]:
    """A Layer for each; ``called``: path → the fields that its calls tell."""
    owners: dict[int, str] = {}
    for path, layer in found:
        parameters = tuple(_parameters(path, layer, owners))
        device = next((names.place_device(str(p.place)) for p in layer._parameters.values() if p is not None), None)
        seen = called.get(path, {})
        yield Layer(path=path, class_name=type(layer).__name__, parameters=parameters, device=device, **seen)


def _parameters(path: str, layer: Any, owners: dict[int, str]) -> Iterator[Parameter]:
    for name, tensor in layer._parameters.items():
        if tensor is None:
            continue
        full = f"{path}.{name}" if path else name
        owner = owners.setdefault(id(tensor), full)
        shape = tuple(tensor.shape)
        yield Parameter(
            name=name,
            shape=shape,
            dtype=str(tensor.dtype).removeprefix("paddle."),
            bytes=math.prod(shape) * tensor.element_size(),
            trainable=not tensor.stop_gradient,
            tied_to=None if owner == full else owner,
        )


def seen(layer: Any, calls: Counter[Signature]) -> dict[str, Any]:
    """What counted calls tell of a layer; FLOPs by formula."""
    return layer_calls.seen(calls, lambda signature: layer_flops.of_call(layer, signature))


def run(
    model: Any, found: Sequence[Named], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """One forward pass without gradients, in eval mode; per path the fields of a Layer."""
    log = CallLog()
    with _eval(model), _watched(found, log), paddle.no_grad():
        model(*args, **kwargs)
    calls = log.take()
    return {path: seen(layer, calls[path]) | {"backward_flops": None} for path, layer in found if path in calls}


@contextmanager
def _eval(model: Any) -> Iterator[None]:
    """Eval mode; every layer gets its own mode back."""
    training = [(layer, layer.training) for layer in model.sublayers(include_self=True)]
    try:
        model.eval()
        yield
    finally:
        for layer, mode in training:
            layer.training = mode


@contextmanager
def _watched(found: Sequence[Named], log: CallLog) -> Iterator[None]:
    """Count calls by path."""
    with ExitStack() as hooks:
        for path, layer in found:
            handle = layer_hooks.after_call(layer, _counting(path, log))
            hooks.callback(handle.remove)
        yield


def _counting(path: str, log: CallLog) -> Any:
    def after(layer: Any, *call: Any) -> None:
        given, returned = (layer_calls.tensors(value, paddle.Tensor) for value in (call[:-1], call[-1]))
        log.add(path, layer_hooks.signature(layer, given, returned))

    return after
