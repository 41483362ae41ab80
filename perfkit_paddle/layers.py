"""The layers of a Paddle model: their paths and parameters, and what a run of the model shows of them.

FLOPs of one call of a Paddle layer, by its class: what the core's formulas need, from the layer's attributes.

``annotate`` and ``describe``: the layers of a Paddle model, in what a profiler records and on their own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import paddle
from paddle import nn
from paddle.nn.layer.conv import _ConvNd
from paddle.nn.layer.rnn import RNNBase

from perfkit_core.model import architecture
from perfkit_core.model.architecture import Architecture, CallLog, Flops, Layer, Parameter, Signature, products
from perfkit_core.recording import annotation
from perfkit_core.recording.annotation import Annotation, Framework
from perfkit_paddle import layer_hooks, names
from perfkit_paddle import layer_hooks as layer_watch

_TRANSPOSED: Final = (nn.Conv1DTranspose, nn.Conv2DTranspose, nn.Conv3DTranspose)
_GATES: Final = {"LSTM": 4, "GRU": 3}


def of_call(layer: Any, call: Signature) -> Flops:
    """Own FLOPs. Paddle's layers without a matrix product have none; what a user's layer computes itself is unknown."""
    formula = next((made for cls, made in _FORMULAS if isinstance(layer, cls)), None)
    if formula is not None:
        return formula(layer, call)
    return Flops(0, 0) if type(layer).__module__.startswith("paddle.nn.") else Flops(None, None)


def _linear(layer: Any, call: Signature) -> Flops:
    return products(call, annotation.linear(call.inputs[0].shape, layer.weight.shape[1]))


def _bilinear(layer: Any, call: Signature) -> Flops:
    outputs, _, second = layer.weight.shape
    return Flops(annotation.bilinear(call.inputs[0].shape, second, outputs), None)


def _convolution(layer: Any, call: Signature) -> Flops:
    """The weights of a transposed one begin with its inputs, those of the others with their outputs; then come the
    channels of a group on the other side, and the kernel."""
    positions = call.inputs[0] if isinstance(layer, _TRANSPOSED) else call.outputs[0]
    channels, *kernel = layer.weight.shape[1:]
    return products(call, annotation.convolution(positions.shape, channels, kernel))


def _attention(layer: Any, call: Signature) -> Flops:
    """Scores and weighted sum; the projections, which make the factors want gradients, are layers of their own."""
    query, key = call.inputs[0].shape, call.inputs[min(1, len(call.inputs) - 1)].shape
    keys = key[1] if len(key) == 3 else query[1]
    forward = annotation.attention((*query[:2], layer.embed_dim), keys)
    trained = any(not p.stop_gradient for p in layer.parameters())
    return Flops(forward, 2 * forward if call.input_gradient or trained else 0)


def _recurrent(layer: Any, call: Signature) -> Flops:
    tokens = call.inputs[0].shape[0] * call.inputs[0].shape[1]
    gates, hidden = _GATES.get(layer.mode, 1), layer.hidden_size
    layers, directions = layer.num_layers, layer.num_directions
    forward = annotation.recurrent(tokens, gates, layer.input_size, hidden, layers, directions, hidden)
    return Flops(forward, 2 * forward if call.input_gradient and call.weight_gradient else None)


_FORMULAS: Final[tuple[tuple[type, Callable[[Any, Signature], Flops]], ...]] = (
    (nn.Linear, _linear),
    (nn.Bilinear, _bilinear),
    (_ConvNd, _convolution),
    (nn.MultiHeadAttention, _attention),
    (RNNBase, _recurrent),
)


Named = tuple[str, Any]


def named(model: Any) -> Iterator[Named]:
    """Path and layer, the model first; what DataParallel wraps stands for it, a layer that occurs twice comes once."""
    found: dict[str, Any] = {}
    parallel = type(model).__name__ == "DataParallel"
    for path, layer in model.named_sublayers(include_self=True):
        parts = path.split(".") if path else []
        found[".".join(parts[1:] if parallel and parts[:1] == ["_layers"] else parts)] = layer
    yield from found.items()


def described_layers(found: Sequence[Named], called: Mapping[str, Mapping[str, Any]]) -> Iterator[Layer]:
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
    return architecture.seen(calls, lambda signature: of_call(layer, signature))


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
        given, returned = (architecture.tensors(value, paddle.Tensor) for value in (call[:-1], call[-1]))
        log.add(path, layer_hooks.signature(layer, given, returned))

    return after


__all__ = ["annotate", "describe"]

FRAMEWORK: Final = Framework(
    name="paddle",
    named=named,
    described=described_layers,
    seen=seen,
    hook=layer_hooks.install,
    watch=layer_watch.watch,
    unwatch=layer_watch.unwatch,
)


def annotate(model: nn.Layer, name: str | None = None) -> Annotation[nn.Layer]:
    """Label every call of every layer of ``model``, forward and backward, in what Paddle's profiler records.

    The hooks exist only while a profiler runs; without one a model runs as it would without us. Nothing raises into the
    training. Paths are those of ``named_sublayers()``; ``name`` goes before them, and is the class where another model
    is annotated already. Annotating a model again returns the same handle; its ``remove()`` or the end of its ``with``
    block ends the labels. A ``trace_handler`` keeps parameters, shapes and FLOPs of the layers with the recording,
    which Paddle's profiler itself does not record. Raises UsageError for a name that is taken.
    """
    return annotation.annotate(FRAMEWORK, model, name)


def describe(model: nn.Layer, *example_inputs: Any, **example_keywords: Any) -> Architecture:
    """The tree of layers with parameters, shapes and devices; with example inputs also calls, tensors and FLOPs.

    With inputs the model runs once, without gradients and in eval mode, then has its modes back; FLOPs are by formula
    for Paddle's own layers, and unknown for what a user's layer computes by itself. ``print()`` shows the tree,
    ``to_pandas()`` returns it as a table.
    """
    found = list(named(model))
    called = run(model, found, example_inputs, example_keywords) if example_inputs or example_keywords else {}
    return Architecture(type(model).__name__, FRAMEWORK.name, tuple(described_layers(found, called)))


def extra() -> dict[str, Any]:
    """What the handler keeps of the annotated models in ``TraceMeta.extra``."""
    return annotation.extra(FRAMEWORK)
