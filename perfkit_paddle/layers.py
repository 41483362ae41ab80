"""``annotate`` labels the layers of a Paddle model while a profiler records. ``describe`` returns the tree of layers.

Each forward call of a layer is recorded as a RecordEvent. This is impossible for backward passes: RecordEvents must
nest, but the backward passes of layers interleave. Therefore gradient hooks label only the start of each backward pass.
The backward label contains the names of the graph nodes that the forward call made."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final

import paddle
from paddle import nn
from paddle.nn.layer.conv import _ConvNd
from paddle.nn.layer.rnn import RNNBase
from paddle.profiler import Profiler, ProfilerState, RecordEvent

from perfkit_core.recording import annotation, layer_flops, layer_framework
from perfkit_core.trace.assembly.labels import backward_label
from perfkit_core.trace.model.architecture import Flops, Signature
from perfkit_paddle import names, static_programs

if TYPE_CHECKING:
    from perfkit_core.pages.architecture import PrintedArchitecture

__all__ = ["annotate", "describe"]

_TRANSPOSED: Final = (nn.Conv1DTranspose, nn.Conv2DTranspose, nn.Conv3DTranspose)


def _attention(layer: Any, call: Signature) -> Flops:
    """Return the FLOPs of attention without its projections, which are separate layers."""
    query, key = call.inputs[0].shape, call.inputs[min(1, len(call.inputs) - 1)].shape
    keys = key[1] if len(key) == 3 else query[1]
    if any(not parameter.stop_gradient for parameter in layer.parameters()):
        call = call._replace(weight_gradient=True)
    return layer_flops.attention(call, layer.embed_dim, keys, False, False)


def _recurrent(layer: Any, call: Signature) -> Flops:
    if not layer.could_use_cudnn:  # the cells are called, and they count
        return Flops(0, 0)
    weights = {name: math.prod(weight.shape) for name, weight in layer.named_parameters() if name.startswith("weight")}
    of_input = sum(weights[name] for name in weights if name.startswith("weight_ih_l0"))
    return layer_flops.recurrent(call, of_input, sum(weights.values()) - of_input)


def _cell(layer: Any, call: Signature) -> Flops:
    weights = sum(math.prod(weight.shape) for name, weight in layer.named_parameters() if name.startswith("weight"))
    of_input = math.prod(layer.weight_ih.shape)
    return layer_flops.recurrent(call, of_input, weights - of_input, hidden_gradient=call.gradient(1))


_ACCUMULATION: Final = "GradNodeAccumulation"
"""Name of the graph node that adds up a parameter's gradient. This node does not belong to a call."""


class Nodes:
    """Finds the nodes of the backward graph that a call of a layer made. These nodes lie between the outputs and inputs
    of the call. A node that an inner call made belongs only to the inner call."""

    def __init__(self) -> None:
        self._inputs: dict[int, list[Any]] = {}
        """Maps the address of each node of a finished call to the nodes that made the inputs of that call. With this
        map, :meth:`claim` skips the nodes of inner calls."""
        self.visited: list[Any] = []
        """All visited nodes. They are kept alive, because another node could reuse the address of a freed node."""

    def of(self, tensors: Iterable[Any]) -> frozenset[int]:
        return frozenset(self._address(node) for tensor in tensors if (node := tensor.grad_fn) is not None)

    def claim(self, returned: list[Any], inputs: frozenset[int]) -> tuple[list[str], list[Any]]:
        """Return the names of a call's own nodes, and the tensors in ``returned`` that it or an inner call made."""
        created = [(tensor, node, self._address(node)) for tensor in returned if (node := tensor.grad_fn) is not None]
        created = [entry for entry in created if entry[2] not in inputs and entry[1].name() != _ACCUMULATION]
        ends: list[Any] = []  # nodes of the call's inputs
        names_by_address: dict[int, str] = {}
        addresses = set()
        nodes = [node for _, node, _ in created]
        while nodes:
            node = nodes.pop()
            address = self._address(node)
            if address in addresses:
                continue
            addresses.add(address)
            if address in inputs:
                ends.append(node)
            elif address in self._inputs:
                nodes.extend(self._inputs[address])
            elif node.name() != _ACCUMULATION:
                names_by_address[address] = node.name()
                nodes.extend(below for below in node.next_functions if below is not None)
        for address in (*names_by_address, *(address for _, _, address in created)):
            self._inputs[address] = ends
        return list(names_by_address.values()), [tensor for tensor, _, _ in created]

    def _address(self, node: Any) -> int:
        self.visited.append(node)
        return int(node.node_ptr())


class _Calls(layer_framework.OpenCalls):
    def __init__(self) -> None:
        super().__init__()
        self.nodes = Nodes()  # graph nodes of the running calls, until the outermost call ends


_calls: Final = _Calls()
_encoded_mark: Final = functools.lru_cache(maxsize=4096)(backward_label)


class PaddleHooks(layer_framework.LayerHooks):
    """The hooks of one layer. ``origins`` are the addresses of the graph nodes that made the inputs of a call."""

    calls = _calls

    def origins(self, inputs: list[Any]) -> frozenset[int]:
        return _calls.nodes.of(inputs)

    def mark(self, outputs: list[Any], origins: frozenset[int]) -> None:
        nodes, tensors = _calls.nodes.claim([tensor for tensor in outputs if not tensor.stop_gradient], origins)
        if tensors:
            mark = layer_framework.BackwardMark(self.framework, _encoded_mark(self.path, self.class_name, tuple(nodes)))
            for tensor in tensors:
                tensor.register_hook(mark)

    def after(self, layer: Any, *call: Any) -> None:
        super().after(layer, *call)
        if not _calls.stack and _calls.nodes.visited:
            _calls.nodes = Nodes()


_RECORDS: Final = (ProfilerState.RECORD, ProfilerState.RECORD_AND_RETURN)


class PaddleLayers(layer_framework.LayerFramework):
    """The layers of a Paddle model. Their paths are those of ``named_sublayers()``, without an outer DataParallel."""

    name = "paddle"
    tensor = paddle.Tensor
    hooks = PaddleHooks
    built_in = "paddle.nn."
    formulas: ClassVar[Sequence[tuple[type, layer_framework.Formula]]] = (
        (nn.Linear, lambda layer, call: layer_flops.linear(call, layer.weight.shape[1])),
        (nn.Bilinear, lambda layer, call: layer_flops.bilinear(call, layer.weight.shape)),
        (
            _ConvNd,
            lambda layer, call: layer_flops.convolution(call, layer.weight.shape, isinstance(layer, _TRANSPOSED)),
        ),
        (nn.MultiHeadAttention, _attention),
        (RNNBase, _recurrent),
        (nn.LSTMCell, _cell),
        (nn.GRUCell, _cell),
        (nn.SimpleRNNCell, _cell),
    )

    def __init__(self) -> None:
        super().__init__()
        self._running: list[Profiler] = []
        """The running profiler, from its start() to its stop(). Paddle allows only one per process."""

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
        """Return whether the profiler records now, by its schedule. False while Paddle builds a static graph."""
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


def _options(method: Any, *names: str) -> dict[str, bool]:
    """Return the options in ``names`` that this version of Paddle supports. Paddle 2.6 supports none."""
    return dict.fromkeys({"with_kwargs", *names} & set(inspect.signature(method).parameters), True)


FRAMEWORK: Final = PaddleLayers()
PaddleHooks.framework = FRAMEWORK


def annotate(
    model: nn.Layer | paddle.static.Program, name: str | None = None
) -> annotation.Annotation[nn.Layer] | static_programs.ProgramAnnotation:
    """Label every call of every layer of ``model``, forward and backward, in the events of Paddle's profiler.

    The label of a layer contains its path in ``named_sublayers()``, for example ``encoder.0.fc``. If ``name`` is given,
    the path begins with it. The first model without a name has no prefix. The paths of further models without a name
    begin with the class of the model.

    Labelling stops when ``remove()`` of the returned object is called, or when its ``with`` block ends. A second call
    for the same model returns the same object. The hooks are installed only while a profiler runs, and they never
    raise. A ``trace_handler`` stores the parameters, shapes and FLOPs of the layers in the recording. Raises UsageError
    if another model has this name.

    ``model`` may also be a static program. A ``trace_handler`` then stores the arguments of the program's operators
    (shapes, types and values), which give FLOPs and bytes. Raises UsageError for a program of the old IR."""
    if static_programs.is_program(model):
        return static_programs.RUNS.annotate(model)
    return annotation.annotate(FRAMEWORK, model, name)


def describe(model: nn.Layer, *example_inputs: Any, **example_keywords: Any) -> PrintedArchitecture:
    """Return the tree of layers with parameters, shapes and devices.

    If example inputs are given, the model runs once, in eval mode without gradients. The tree then also contains calls,
    tensors and FLOPs. FLOPs of Paddle's own layers follow from formulas; FLOPs of user-defined layers are unknown. The
    train or eval mode of each layer is restored. ``print()`` shows the tree; ``to_pandas()`` returns it as a table."""
    from perfkit_core.pages.architecture import PrintedArchitecture  # imports pandas, only needed here

    described = FRAMEWORK.describe(model, example_inputs, example_keywords)
    return PrintedArchitecture(described.name, described.framework, described.layers)
