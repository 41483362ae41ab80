"""Layers of models in any framework: the interface of an adapter, and the hooks and FLOPs formulas shared by all.

Hooks label the calls of layers for the profiler and count them by signature. FLOPs follow from the signature for matrix
products and convolutions, with two per multiply-add. Biases, norms and activations count 0, as in common FLOPs
counters.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, ClassVar, Final, NamedTuple

from perfkit_core.assembly.labels import module_label
from perfkit_core.model import architecture
from perfkit_core.model.architecture import Architecture, CallLog, Flops, Layer, Parameter, Signature, TensorSpec
from perfkit_core.system.failures import logger

Named = tuple[str, Any]
"""Path and layer."""
Formula = Callable[[Any, Signature], Flops]
"""FLOPs of one call of a layer, without its children."""
GATES: Final = {"LSTM": 4, "GRU": 3}
"""Matrix products of a recurrent cell by its mode; other modes have 1."""


class LayerFramework(ABC):
    """Interface to find, describe and hook the layers of a framework."""

    name: ClassVar[str]
    tensor: ClassVar[type]
    hooks: ClassVar[type[LayerHooks]]
    built_in: ClassVar[str]
    """Prefix of the Python modules that define the framework's own layers."""
    formulas: ClassVar[Sequence[tuple[type, Formula]]]
    """Formulas by class of layer. Other layers of the framework have 0 FLOPs; those of user-defined layers are
    unknown."""

    def __init__(self) -> None:
        self.active: list[Any] = []
        """The annotations (:class:`perfkit_core.recording.annotation.Annotation`) that were not removed."""

    @abstractmethod
    def named(self, model: Any) -> Iterator[Named]:
        """Yield every layer of a model, the model first; a repeated layer has its first path."""

    @abstractmethod
    def watch(self) -> None:
        """Call :meth:`install` and :meth:`uninstall` whenever a profiler starts and stops recording."""

    @abstractmethod
    def unwatch(self) -> None:
        """Restore the framework's own functions once nothing is annotated."""

    @abstractmethod
    def recording(self) -> bool:
        """Return whether a label would be recorded now."""

    def compiling(self) -> bool:
        """Return whether a label would become part of a compiled or traced graph."""
        return False

    @abstractmethod
    def label(self, text: str) -> AbstractContextManager[Any]:
        """Return a label for the profiler that spans the ``with`` block."""

    @abstractmethod
    def before_call(self, layer: Any, hook: Callable[..., None]) -> Any:
        """Register a hook that receives the layer and its arguments; return a handle with ``remove()``."""

    @abstractmethod
    def after_call(self, layer: Any, hook: Callable[..., None], always: bool = False) -> Any:
        """Register a hook that receives the layer, its arguments and its output; return a handle with ``remove()``.
        ``always``: also call it, without an output, if the layer raises and the framework supports that."""

    @abstractmethod
    def evaluation(self, model: Any) -> AbstractContextManager[Any]:
        """Return a ``with`` block in eval mode without gradients, which restores the mode of every layer."""

    @abstractmethod
    def gradients_enabled(self) -> bool:
        """Return whether the framework records for a backward pass."""

    @abstractmethod
    def needs_gradient(self, tensor: Any) -> bool:
        """Return whether a backward pass computes the gradient of a tensor."""

    @abstractmethod
    def device(self, tensor: Any) -> str:
        """Return the value of the device column for a tensor."""

    def shape(self, parameter: Any) -> tuple[int, ...] | None:
        """Return the shape of a parameter, None if it is not initialised yet."""
        return tuple(parameter.shape)

    def install(self) -> None:
        """Hook all annotated models. Never raises."""
        for annotation in list(self.active):
            annotation.install()

    def uninstall(self) -> None:
        """Remove the hooks of all annotated models. Never raises."""
        for annotation in list(self.active):
            annotation.uninstall()

    def hook(self, layer: Any, path: str, log: CallLog) -> Iterator[Any]:
        """Hook a layer that has no hooks yet; yield handles with ``remove()``."""
        present = layer._forward_pre_hooks.values()
        if any(isinstance(getattr(hook, "__self__", None), LayerHooks) for hook in present):
            return
        hooks = self.hooks(path, type(layer).__name__, log)
        yield self.before_call(layer, hooks.before)
        yield self.after_call(layer, hooks.after, always=True)

    def signature(self, layer: Any, inputs: list[Any], outputs: list[Any]) -> Signature:
        """Return the tensors of a call and which gradients its backward pass computes."""
        enabled = self.gradients_enabled()
        return Signature(
            tuple(map(self._spec, inputs)),
            tuple(map(self._spec, outputs)),
            enabled and any(map(self.needs_gradient, inputs)),
            enabled and any(self.needs_gradient(p) for p in layer._parameters.values() if p is not None),
        )

    def _spec(self, tensor: Any) -> TensorSpec:
        return TensorSpec(tuple(tensor.shape), self._dtype(tensor))

    def _dtype(self, tensor: Any) -> str:
        return str(tensor.dtype).removeprefix(f"{self.name}.")

    def flops(self, layer: Any, call: Signature) -> Flops:
        formula = next((formula for cls, formula in self.formulas if isinstance(layer, cls)), None)
        if formula is not None:
            return formula(layer, call)
        return Flops(0, 0) if type(layer).__module__.startswith(self.built_in) else Flops(None, None)

    def seen(self, layer: Any, calls: Counter[Signature]) -> dict[str, Any]:
        """Return the fields of a Layer that follow from its counted calls, at least one."""
        per_signature: list[list[int | None]] = []
        for signature, count in calls.items():
            try:
                each = self.flops(layer, signature)
            except Exception:  # a subclass whose calls differ from those of the formula's layer
                each = Flops(None, None)
            per_signature.append([None if number is None else number * count for number in each])
        forward, backward = (
            None if None in numbers else sum(filter(None, numbers)) for numbers in zip(*per_signature, strict=True)
        )
        last = next(reversed(calls))
        return {
            "calls": calls.total(),
            "inputs": last.inputs,
            "outputs": last.outputs,
            "flops": forward,
            "backward_flops": backward,
        }

    def described(self, layers: Sequence[Named], called: Mapping[str, Mapping[str, Any]]) -> Iterator[Layer]:
        """Describe each layer; ``called``: path → fields that follow from its calls."""
        owners: dict[int, str] = {}  # tensor id → name of its first parameter
        for path, layer in layers:
            tensors = {name: tensor for name, tensor in layer._parameters.items() if tensor is not None}
            parameters = []
            for name, tensor in tensors.items():
                full = f"{path}.{name}" if path else name
                owner, shape = owners.setdefault(id(tensor), full), self.shape(tensor)
                parameters.append(
                    Parameter(
                        name=name,
                        shape=shape,
                        dtype=self._dtype(tensor),
                        bytes=None if shape is None else math.prod(shape) * tensor.element_size(),
                        trainable=self.needs_gradient(tensor),
                        tied_to=None if owner == full else owner,
                    )
                )
            yield Layer(
                path=path,
                class_name=type(layer).__name__,
                parameters=tuple(parameters),
                device=next(map(self.device, tensors.values()), None),
                **called.get(path, {}),
            )

    def run(
        self, model: Any, layers: Sequence[Named], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """Run a model once, in eval mode without gradients; return the fields of each layer that follow from its calls,
        by path."""
        log = CallLog()

        def counting(path: str) -> Callable[..., None]:
            def after(layer: Any, *call: Any) -> None:
                inputs, outputs = (architecture.tensors(value, self.tensor) for value in (call[:-1], call[-1]))
                log.add(path, self.signature(layer, inputs, outputs))

            return after

        with self.evaluation(model), ExitStack() as hooks:
            for path, layer in layers:
                hooks.callback(self.after_call(layer, counting(path)).remove)
            model(*args, **kwargs)
        calls = log.take()
        return {
            path: self.seen(layer, calls[path]) | {"backward_flops": None} for path, layer in layers if path in calls
        }

    def describe(self, model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Architecture:
        """Return the tree of layers. With arguments the model runs once, and the tree has calls, tensors and FLOPs."""
        layers = list(self.named(model))
        called = self.run(model, layers, args, kwargs) if args or kwargs else {}
        return Architecture(type(model).__name__, self.name, tuple(self.described(layers, called)))


class OpenCall(NamedTuple):
    """A running call: its label, its input tensors, and the nodes of the backward graph that made them."""

    hooks: LayerHooks
    label: AbstractContextManager[Any]
    inputs: list[Any]
    origins: Any


class OpenCalls(threading.local):
    """The running calls of this thread in ``stack``, innermost last."""

    def __init__(self) -> None:
        self.stack: list[OpenCall] = []


class LayerHooks(ABC):
    """The hooks of one layer. Copies of a model share them, as they hold no reference to it."""

    framework: ClassVar[LayerFramework]
    calls: ClassVar[OpenCalls]

    def __init__(self, path: str, class_name: str, log: CallLog) -> None:
        self.path = path
        self.class_name = class_name
        self.label = module_label(path, class_name)
        self.log = log

    @abstractmethod
    def origins(self, inputs: list[Any]) -> Any:
        """Return the nodes of the backward graph that made the inputs of a call."""

    @abstractmethod
    def mark(self, outputs: list[Any], origins: Any) -> None:
        """Register a mark at the start of the call's backward pass, if it has one."""

    def __deepcopy__(self, memo: dict[int, Any]) -> LayerHooks:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle hooks that only label: a model may be saved while a profiler runs."""
        return type(self), (self.path, self.class_name, CallLog())

    def before(self, layer: Any, *given: Any) -> None:
        """Open the label, as a hook before the call."""
        if not self.framework.recording():
            return
        try:
            inputs = architecture.tensors(given, self.framework.tensor)
            origins = self.origins(inputs)  # before the call, as in-place changes replace the origin
            label = self.framework.label(self.label)
            label.__enter__()
            self.calls.stack.append(OpenCall(self, label, inputs, origins))
        except Exception:
            _failed("the begin of a call")

    def after(self, layer: Any, *call: Any) -> None:
        """Close the label, as a hook after the call; the last argument is the output, None if the call raised."""
        if self.framework.compiling():
            return
        try:
            stack = self.calls.stack
            if not any(opened.hooks is self for opened in stack):
                return
            while True:  # also close labels that were left open inside the call
                opened = stack.pop()
                opened.label.__exit__(None, None, None)
                if opened.hooks is self:
                    break
            outputs = architecture.tensors(call[-1], self.framework.tensor)
            self.log.add(self.path, self.framework.signature(layer, opened.inputs, outputs))
            self.mark(outputs, opened.origins)
        except Exception:
            _failed("the end of a call")


class BackwardMark:
    """Hook on the graph nodes or tensors where a call's backward pass may begin; marks the first one that runs."""

    def __init__(self, framework: LayerFramework, label: str) -> None:
        self._framework = framework
        self._label = label
        self._done = False

    def __call__(self, *_: Any) -> None:
        try:
            if not self._done and self._framework.recording():
                self._done = True
                with self._framework.label(self._label):
                    pass
        except Exception:
            _failed("a backward pass")


def _failed(what: str) -> None:
    logger.debug("perfkit: %s could not be labelled", what, exc_info=True)


def linear(input_shape: Sequence[int], outputs: int) -> int:
    """Return the FLOPs of a product of the last input dimension with a matrix of ``outputs`` columns."""
    return 2 * math.prod(input_shape) * outputs


def bilinear(first_shape: Sequence[int], second_features: int, outputs: int) -> int:
    """Return the FLOPs of x1ᵀ·A·x2 for each of ``outputs`` matrices A."""
    return 2 * math.prod(first_shape) * second_features * outputs


def convolution(positions: Sequence[int], channels: int, kernel: Sequence[int]) -> int:
    """Return the FLOPs of a convolution. ``positions``: shape of the output (transposed: of the input) with channels;
    ``channels``: channels per group on the other side."""
    return 2 * math.prod(positions) * channels * math.prod(kernel)


def attention(query: Sequence[int], keys: int) -> int:
    """Return the FLOPs of the scores and the weighted sum over all heads. ``query``: shape (batch, length, width) after
    projection; ``keys``: positions that each query attends to."""
    return 4 * math.prod(query) * keys


def recurrent(
    call: Signature, tokens: int, mode: str, inputs: int, hidden: int, layers: int, directions: int, output: int
) -> Flops:
    """Return the FLOPs of a recurrent network. ``tokens``: batch × length; ``output``: output features per direction
    (``hidden`` without projection). Upper layers receive the outputs of all directions."""
    gates = GATES.get(mode, 1)
    first = gates * hidden * (inputs + output)
    others = gates * hidden * (directions * output + output) * (layers - 1)
    projected = hidden * output * layers if output != hidden else 0
    forward = 2 * tokens * directions * (first + others + projected)
    return Flops(forward, 2 * forward if call.input_gradient and call.weight_gradient else None)
