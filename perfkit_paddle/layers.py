"""``annotate`` and ``describe``: labels on the layers of a Paddle model while recording, and the table of its layers.

A call is a RecordEvent. The backward pass is marked by gradient hooks on the tensors that a call returned, inside its
first graph node; the mark lists the call's nodes, because Paddle numbers neither operators nor nodes. A span over the
backward pass would lose the whole profile: RecordEvents must nest, and nodes of different layers interleave. Hooks are
installed only while Paddle's profiler runs.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final

import paddle
from paddle import nn
from paddle.nn.layer.conv import _ConvNd
from paddle.nn.layer.rnn import RNNBase
from paddle.profiler import Profiler, ProfilerState, RecordEvent

from perfkit_core.assembly.labels import backward_label
from perfkit_core.model.architecture import Flops, Signature, products
from perfkit_core.recording import annotation, layer_framework
from perfkit_paddle import names

if TYPE_CHECKING:
    from perfkit_core.pages.architecture import PrintedArchitecture

__all__ = ["annotate", "describe"]

_TRANSPOSED: Final = (nn.Conv1DTranspose, nn.Conv2DTranspose, nn.Conv3DTranspose)


def _linear(layer: Any, call: Signature) -> Flops:
    return products(call, layer_framework.linear(call.inputs[0].shape, layer.weight.shape[1]))


def _bilinear(layer: Any, call: Signature) -> Flops:
    outputs, _, second = layer.weight.shape
    return Flops(layer_framework.bilinear(call.inputs[0].shape, second, outputs), None)


def _convolution(layer: Any, call: Signature) -> Flops:
    """Return the FLOPs of a convolution. A transposed one has its input channels first in the weights, others their
    output channels; the channels of a group and the kernel follow."""
    positions = call.inputs[0] if isinstance(layer, _TRANSPOSED) else call.outputs[0]
    channels, *kernel = layer.weight.shape[1:]
    return products(call, layer_framework.convolution(positions.shape, channels, kernel))


def _attention(layer: Any, call: Signature) -> Flops:
    """Return the FLOPs of the scores and the weighted sum; the projections are layers of their own."""
    query, key = call.inputs[0].shape, call.inputs[min(1, len(call.inputs) - 1)].shape
    keys = key[1] if len(key) == 3 else query[1]
    forward = layer_framework.attention((*query[:2], layer.embed_dim), keys)
    trained = any(not p.stop_gradient for p in layer.parameters())
    return Flops(forward, 2 * forward if call.input_gradient or trained else 0)


def _recurrent(layer: Any, call: Signature) -> Flops:
    tokens = call.inputs[0].shape[0] * call.inputs[0].shape[1]
    hidden, layers, directions = layer.hidden_size, layer.num_layers, layer.num_directions
    return layer_framework.recurrent(call, tokens, layer.mode, layer.input_size, hidden, layers, directions, hidden)


_ACCUMULATION: Final = "GradNodeAccumulation"
"""Collects the gradient of a parameter; it belongs to the parameter, not to a call."""


class Nodes:
    """The backward graph nodes made by the calls inside one outermost call. A call made the nodes between its outputs
    and its inputs, except those of the calls inside it; each inner call is skipped in one go, so that a node is visited
    once."""

    def __init__(self) -> None:
        self._inputs: dict[int, list[Any]] = {}
        """Node of a call → the nodes of its inputs, where the walk continues."""
        self.kept: list[Any] = []
        """All visited nodes: their addresses identify them, so none may be freed."""

    def of(self, tensors: Iterable[Any]) -> frozenset[int]:
        return frozenset(self._address(node) for tensor in tensors if (node := tensor.grad_fn) is not None)

    def claim(self, returned: list[Any], inputs: frozenset[int]) -> tuple[list[str], list[Any]]:
        """Return the names of the nodes that a call made itself, and the returned tensors that it made."""
        made = [(tensor, node, self._address(node)) for tensor in returned if (node := tensor.grad_fn) is not None]
        made = [entry for entry in made if entry[2] not in inputs and entry[1].name() != _ACCUMULATION]
        ends: list[Any] = []  # the nodes of the inputs
        own: dict[int, str] = {}
        seen = set()
        nodes = [node for _, node, _ in made]
        while nodes:
            node = nodes.pop()
            address = self._address(node)
            if address in seen:
                continue
            seen.add(address)
            if address in inputs:
                ends.append(node)
            elif address in self._inputs:
                nodes.extend(self._inputs[address])
            elif node.name() != _ACCUMULATION:
                own[address] = node.name()
                nodes.extend(below for below in node.next_functions if below is not None)
        for address in (*own, *(address for _, _, address in made)):
            self._inputs[address] = ends
        return list(own.values()), [tensor for tensor, _, _ in made]

    def _address(self, node: Any) -> int:
        self.kept.append(node)
        return int(node.node_ptr())


class _Calls(layer_framework.OpenCalls):
    """The open calls of a thread; ``nodes`` are those made within its outermost call."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = Nodes()


_calls: Final = _Calls()
_encoded_mark: Final = functools.lru_cache(maxsize=4096)(backward_label)


class PaddleHooks(layer_framework.LayerHooks):
    """The hooks of one layer; the origin of a tensor is the address of the graph node that made it."""

    calls = _calls

    def origins(self, inputs: list[Any]) -> frozenset[int]:
        return _calls.nodes.of(inputs)

    def mark(self, outputs: list[Any], origins: frozenset[int]) -> None:
        own, first = _calls.nodes.claim([tensor for tensor in outputs if not tensor.stop_gradient], origins)
        if first:
            mark = layer_framework.BackwardMark(self.framework, _encoded_mark(self.path, self.class_name, tuple(own)))
            for tensor in first:
                tensor.register_hook(mark)

    def after(self, layer: Any, *call: Any) -> None:
        super().after(layer, *call)
        if not _calls.stack and _calls.nodes.kept:
            _calls.nodes = Nodes()


_RECORDS: Final = (ProfilerState.RECORD, ProfilerState.RECORD_AND_RETURN)


class PaddleLayers(layer_framework.LayerFramework):
    """The layers of Paddle, with the paths of ``named_sublayers()`` without the outer DataParallel."""

    name = "paddle"
    tensor = paddle.Tensor
    hooks = PaddleHooks
    built_in = "paddle.nn."
    formulas: ClassVar[Sequence[tuple[type, layer_framework.Formula]]] = (
        (nn.Linear, _linear),
        (nn.Bilinear, _bilinear),
        (_ConvNd, _convolution),
        (nn.MultiHeadAttention, _attention),
        (RNNBase, _recurrent),
    )

    def __init__(self) -> None:
        super().__init__()
        self._running: list[Profiler] = []
        """The profilers between start() and stop(), at most one per process."""

    def named(self, model: nn.Layer) -> Iterator[layer_framework.Named]:
        layers: dict[str, Any] = {}
        parallel = type(model).__name__ == "DataParallel"
        for path, layer in model.named_sublayers(include_self=True):
            parts = path.split(".") if path else []
            layers[".".join(parts[1:] if parallel and parts[:1] == ["_layers"] else parts)] = layer
        yield from layers.items()

    def watch(self) -> None:
        if hasattr(Profiler, "_perfkit_original"):
            return
        originals = (Profiler.start, Profiler.stop)

        def start(profiler: Profiler) -> None:
            originals[0](profiler)
            if not profiler.timer_only:
                self._running.append(profiler)
                self.install()

        def stop(profiler: Profiler) -> None:
            try:
                originals[1](profiler)
            finally:
                self._running.clear()
                self.uninstall()

        Profiler._perfkit_original = originals
        Profiler.start, Profiler.stop = start, stop

    def unwatch(self) -> None:
        if not self.active and hasattr(Profiler, "_perfkit_original"):
            Profiler.start, Profiler.stop = Profiler._perfkit_original
            del Profiler._perfkit_original

    def recording(self) -> bool:
        """Return whether events are recorded: not while the schedule waits, nor while a static graph is built."""
        running = self._running
        return bool(running) and running[-1].current_state in _RECORDS and paddle.in_dynamic_mode()

    def label(self, text: str) -> AbstractContextManager[Any]:
        event: AbstractContextManager[Any] = RecordEvent(text)
        return event

    def before_call(self, layer: nn.Layer, hook: Callable[..., None]) -> Any:
        return layer.register_forward_pre_hook(hook, **_options(layer.register_forward_pre_hook, "prepend"))

    def after_call(self, layer: nn.Layer, hook: Callable[..., None], always: bool = False) -> Any:
        options = ("always_call",) if always else ()
        return layer.register_forward_post_hook(hook, **_options(layer.register_forward_post_hook, *options))

    @contextmanager
    def evaluation(self, model: nn.Layer) -> Iterator[None]:
        training = [(layer, layer.training) for layer in model.sublayers(include_self=True)]
        try:
            model.eval()
            with paddle.no_grad():
                yield
        finally:
            for layer, mode in training:
                layer.training = mode

    def gradients_enabled(self) -> bool:
        return bool(paddle.is_grad_enabled())

    def needs_gradient(self, tensor: Any) -> bool:
        return not tensor.stop_gradient

    def device(self, tensor: Any) -> str:
        return names.place_device(str(tensor.place))


def _options(method: Any, *wanted: str) -> dict[str, bool]:
    """Return those hook options that this Paddle supports; 2.6 has none, and passes no keyword arguments to hooks."""
    return dict.fromkeys({"with_kwargs", *wanted} & set(inspect.signature(method).parameters), True)


FRAMEWORK: Final = PaddleLayers()
PaddleHooks.framework = FRAMEWORK


def annotate(model: nn.Layer, name: str | None = None) -> annotation.Annotation[nn.Layer]:
    """Label every call of every layer of ``model``, forward and backward, in the events of Paddle's profiler.

    Hooks are installed only while a profiler runs. Nothing raises into the training. Paths are those of
    ``named_sublayers()`` with the prefix ``name``, by default the class if another model is annotated already.
    Annotating a model again returns the same handle; ``remove()`` or the end of its ``with`` block removes the labels.
    A ``trace_handler`` stores parameters, shapes and FLOPs of the layers with the recording, which Paddle's profiler
    does not record. Raises UsageError if the name is taken.
    """
    return annotation.annotate(FRAMEWORK, model, name)


def describe(model: nn.Layer, *example_inputs: Any, **example_keywords: Any) -> PrintedArchitecture:
    """Return the tree of layers with parameters, shapes and devices; with example inputs also calls, tensors and FLOPs.
    With inputs, the model runs once without gradients and in eval mode, then its modes are restored; FLOPs follow from
    formulas for Paddle's own layers and are unknown for a user's own code. ``print()`` shows the tree, ``to_pandas()``
    returns a table."""
    from perfkit_core.pages.architecture import PrintedArchitecture  # imports pandas, which annotate does not need

    described = FRAMEWORK.describe(model, example_inputs, example_keywords)
    return PrintedArchitecture(described.name, described.framework, described.layers)
