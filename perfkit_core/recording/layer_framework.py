"""The layers of models in any framework: what an adapter provides, and what is the same for all of them.

Hooks label the calls of layers for the profiler and count them by signature. FLOPs of a call follow from its signature
by formula: matrix products and convolutions, two for each multiplication with addition. Biases, norms and activations
count nothing, as common counters have it.
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
"""Matrix products of a recurrent cell by its mode; all other modes have 1."""


class LayerFramework(ABC):
    """How layers are found, described and hooked in a framework."""

    name: ClassVar[str]
    tensor: ClassVar[type]
    hooks: ClassVar[type[LayerHooks]]
    built_in: ClassVar[str]
    """Prefix of the Python modules that define the framework's own layers."""
    formulas: ClassVar[Sequence[tuple[type, Formula]]]
    """By class of the layer. The framework's other layers have no FLOPs; those of a user's layer are unknown."""

    def __init__(self) -> None:
        self.active: list[Any] = []
        """The annotations (:class:`perfkit_core.recording.annotation.Annotation`) that were not removed."""

    @abstractmethod
    def named(self, model: Any) -> Iterator[Named]:
        """Every layer of a model, the model first; a layer that occurs twice under its first path."""

    @abstractmethod
    def watch(self) -> None:
        """Call :meth:`install` and :meth:`uninstall` whenever a profiler begins and stops to record."""

    @abstractmethod
    def unwatch(self) -> None:
        """Give the framework its own functions back once nothing is annotated."""

    @abstractmethod
    def recording(self) -> bool:
        """Return whether a label would be recorded now."""

    def compiling(self) -> bool:
        """Return whether a label would end up in a compiled or traced graph."""
        return False

    @abstractmethod
    def label(self, text: str) -> AbstractContextManager[Any]:
        """Return a label for the profiler, which spans the ``with`` block."""

    @abstractmethod
    def before_call(self, layer: Any, hook: Callable[..., None]) -> Any:
        """Register a hook that gets the layer and its arguments; returns a handle with ``remove()``."""

    @abstractmethod
    def after_call(self, layer: Any, hook: Callable[..., None], always: bool = False) -> Any:
        """Register a hook that gets the layer, its arguments and its output; returns a handle with ``remove()``.

        ``always``: also where the layer raises, then without an output, if the framework can do that.
        """

    @abstractmethod
    def evaluation(self, model: Any) -> AbstractContextManager[Any]:
        """Return a ``with`` block in eval mode and without gradients; every layer gets its own mode back."""

    @abstractmethod
    def gradients_enabled(self) -> bool:
        """Return whether the framework records what a backward pass needs."""

    @abstractmethod
    def needs_gradient(self, tensor: Any) -> bool:
        """Return whether a backward pass computes the gradient of a tensor."""

    @abstractmethod
    def device(self, tensor: Any) -> str:
        """Return the value of the device column for a tensor."""

    def shape(self, parameter: Any) -> tuple[int, ...] | None:
        """Return the shape of a parameter, None for one that is not initialised yet."""
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
        """Hook a layer, unless it is hooked already; yields handles with ``remove()``."""
        present = layer._forward_pre_hooks.values()
        if any(isinstance(getattr(hook, "__self__", None), LayerHooks) for hook in present):
            return
        hooks = self.hooks(path, type(layer).__name__, log)
        yield self.before_call(layer, hooks.before)
        yield self.after_call(layer, hooks.after, always=True)

    def signature(self, layer: Any, inputs: list[Any], outputs: list[Any]) -> Signature:
        """Return the tensors of a call, and which gradients its backward pass will compute."""
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
        """Return the FLOPs of one call of a layer."""
        formula = next((formula for cls, formula in self.formulas if isinstance(layer, cls)), None)
        if formula is not None:
            return formula(layer, call)
        return Flops(0, 0) if type(layer).__module__.startswith(self.built_in) else Flops(None, None)

    def seen(self, layer: Any, calls: Counter[Signature]) -> dict[str, Any]:
        """Return the fields of a Layer that its counted calls tell."""
        return architecture.seen(calls, lambda call: self.flops(layer, call))

    def described(self, layers: Sequence[Named], called: Mapping[str, Mapping[str, Any]]) -> Iterator[Layer]:
        """Describe each layer; ``called``: path → the fields that its calls tell."""
        owners: dict[int, str] = {}  # of each tensor: the first parameter that it is
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
        """Run a model once, in eval mode and without gradients; return what its calls tell of each layer, by path."""
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
        """Return the tree of layers; with arguments the model runs once, and the tree has calls, tensors and FLOPs."""
        layers = list(self.named(model))
        called = self.run(model, layers, args, kwargs) if args or kwargs else {}
        return Architecture(type(model).__name__, self.name, tuple(self.described(layers, called)))


class OpenCall(NamedTuple):
    """A call that is running: its label, the tensors it was given, and what had made them."""

    hooks: LayerHooks
    label: AbstractContextManager[Any]
    inputs: list[Any]
    origins: Any


class OpenCalls(threading.local):
    """``stack``: the calls that this thread is in, the innermost last."""

    def __init__(self) -> None:
        self.stack: list[OpenCall] = []


class LayerHooks(ABC):
    """The hooks of one layer. Copies of a model share them: they hold nothing of it."""

    framework: ClassVar[LayerFramework]
    calls: ClassVar[OpenCalls]

    def __init__(self, path: str, class_name: str, log: CallLog) -> None:
        self.path = path
        self.class_name = class_name
        self.label = module_label(path, class_name)
        self.log = log

    @abstractmethod
    def origins(self, inputs: list[Any]) -> Any:
        """Return what made the tensors that a call is given, in the backward graph."""

    @abstractmethod
    def mark(self, outputs: list[Any], origins: Any) -> None:
        """Have the backward pass of a call marked where it begins, if it has one."""

    def __deepcopy__(self, memo: dict[int, Any]) -> LayerHooks:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """A model that is saved while a profiler runs takes hooks along that only label."""
        return type(self), (self.path, self.class_name, CallLog())

    def before(self, layer: Any, *given: Any) -> None:
        """Open the label: a hook before the call."""
        if not self.framework.recording():
            return
        try:
            inputs = architecture.tensors(given, self.framework.tensor)
            origins = self.origins(inputs)  # now: what is changed in place has another origin afterwards
            label = self.framework.label(self.label)
            label.__enter__()
            self.calls.stack.append(OpenCall(self, label, inputs, origins))
        except Exception:
            _failed("the begin of a call")

    def after(self, layer: Any, *call: Any) -> None:
        """Close the label: a hook after the call, which gets its arguments and its output, None where it raised."""
        if self.framework.compiling():
            return
        try:
            stack = self.calls.stack
            if not any(opened.hooks is self for opened in stack):
                return
            while True:  # labels that were left open inside the call end with it
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
    """Hook of the graph nodes or tensors in which a call's backward pass may begin: marks the first of them."""

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
    """Return the FLOPs of a matrix product with the last dimension of the input, to ``outputs`` features."""
    return 2 * math.prod(input_shape) * outputs


def bilinear(first_shape: Sequence[int], second_features: int, outputs: int) -> int:
    """Return the FLOPs of x1ᵀ·A·x2 for each of ``outputs`` matrices A."""
    return 2 * math.prod(first_shape) * second_features * outputs


def convolution(positions: Sequence[int], channels: int, kernel: Sequence[int]) -> int:
    """Return the FLOPs of a convolution. ``positions``: shape of the output (transposed: of the input), channels
    included. ``channels``: those of one group on the other side."""
    return 2 * math.prod(positions) * channels * math.prod(kernel)


def attention(query: Sequence[int], keys: int) -> int:
    """Return the FLOPs of scores and weighted sum of all heads together. ``query``: shape (batch, length, width) after
    projection; ``keys``: how many positions each query sees."""
    return 4 * math.prod(query) * keys


def recurrent(
    call: Signature, tokens: int, mode: str, inputs: int, hidden: int, layers: int, directions: int, output: int
) -> Flops:
    """Return the FLOPs of a recurrent network. ``tokens``: batch × length. The layers above the first see the outputs
    of all directions; ``output`` is what one direction puts out (``hidden``, if it is not projected)."""
    gates = GATES.get(mode, 1)
    first = gates * hidden * (inputs + output)
    others = gates * hidden * (directions * output + output) * (layers - 1)
    projected = hidden * output * layers if output != hidden else 0
    forward = 2 * tokens * directions * (first + others + projected)
    return Flops(forward, 2 * forward if call.input_gradient and call.weight_gradient else None)
