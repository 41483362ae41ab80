"""Layers of models: the interface that each adapter implements, and the hooks that adapters share.

The hooks label the calls of layers for the profiler, and count the calls by signature. The FLOPs of a call follow from
its signature (:mod:`perfkit_core.recording.layer_flops`)."""

from __future__ import annotations

import contextlib
import math
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, ClassVar, NamedTuple

from perfkit_core.base.system.failures import logger, raised_by_signal
from perfkit_core.trace.assembly.labels import module_label
from perfkit_core.trace.model import architecture
from perfkit_core.trace.model.architecture import Architecture, CallLog, Flops, Layer, Parameter, Signature, TensorSpec

Named = tuple[str, Any]
"""The path of a layer, and the layer itself."""
Formula = Callable[[Any, Signature], Flops]
"""A function of a layer and a signature. It returns the FLOPs of one call, without the FLOPs of inner layers."""


class LayerFramework(ABC):
    """Interface through which an adapter finds, describes and hooks the layers of models."""

    name: ClassVar[str]
    tensor: ClassVar[type]
    hooks: ClassVar[type[LayerHooks]]
    built_in: ClassVar[str]
    """Prefix of the Python modules that define the framework's own layers."""
    formulas: ClassVar[Sequence[tuple[type, Formula]]]
    """Layer classes and their formulas. Other built-in layers have 0 FLOPs. User-defined layers have unknown FLOPs."""

    def __init__(self) -> None:
        self.active: list[Any] = []
        """The annotations (:class:`perfkit_core.recording.annotation.Annotation`) that have not been removed."""

    @abstractmethod
    def named(self, model: Any) -> Iterator[Named]:
        """Yield path and layer of the model and of every layer in it. A repeated layer is yielded once."""

    @abstractmethod
    def watch(self) -> None:
        """From now on, call :meth:`install` when a profiler starts recording, and :meth:`uninstall` when it stops."""

    @abstractmethod
    def unwatch(self) -> None:
        """If no model is annotated, restore the functions of the framework that :meth:`watch` replaced."""

    @abstractmethod
    def recording(self) -> bool:
        """Return whether a profiler is recording labels."""

    def compiling(self) -> bool:
        """Return whether the framework is compiling or tracing a graph. A label would then become part of the graph."""
        return False

    @abstractmethod
    def label(self, text: str) -> AbstractContextManager[Any]:
        """Return a context manager that labels its ``with`` block for the profiler."""

    @abstractmethod
    def before_call(self, layer: Any, hook: Callable[..., None]) -> Any:
        """Register a hook that is called with the layer and its arguments. Return a handle with ``remove()``."""

    @abstractmethod
    def after_call(self, layer: Any, hook: Callable[..., None], always: bool = False) -> Any:
        """Register a hook that is called with the layer, its arguments and its output. Return a handle with
        ``remove()``. With ``always``, the hook is also called when the layer raises, with None as output. Not every
        framework supports this."""

    @abstractmethod
    def evaluation(self, model: Any) -> AbstractContextManager[Any]:
        """Return a context manager: the block runs in eval mode without gradients. Then all modes are restored."""

    @abstractmethod
    def gradients_enabled(self) -> bool:
        """Return whether the framework records operations for a backward pass."""

    @abstractmethod
    def needs_gradient(self, tensor: Any) -> bool:
        """Return whether a backward pass computes the gradient of this tensor."""

    @abstractmethod
    def device(self, tensor: Any) -> str:
        """Return the device of a tensor, in the form of the column ``device``."""

    def shape(self, parameter: Any) -> tuple[int, ...] | None:
        """Return the shape of a parameter, or None if the parameter is not initialised yet."""
        return tuple(parameter.shape)

    def install(self) -> None:
        """Hook all annotated models. Never raises."""
        for annotation in list(self.active):
            annotation.install()

    def uninstall(self) -> None:
        """Remove the hooks of all annotated models, and close the labels of calls that run in this thread. A label must
        not end in a later recording. Never raises."""
        for annotation in list(self.active):
            annotation.uninstall()
        stack = self.hooks.calls.stack
        while stack:
            with contextlib.suppress(Exception):
                stack.pop().label.__exit__(None, None, None)

    def hook(self, layer: Any, path: str, log: CallLog) -> Iterator[Any]:
        """Hook a layer if it has no hooks yet. Yield handles with ``remove()``."""
        if any(isinstance(getattr(h, "__self__", None), LayerHooks) for h in layer._forward_pre_hooks.values()):
            return
        hooks = self.hooks(path, type(layer).__name__, log)
        yield self.before_call(layer, hooks.before)
        yield self.after_call(layer, hooks.after, always=True)

    def signature(self, layer: Any, inputs: list[Any], outputs: list[Any]) -> Signature:
        """Return the shapes and data types of a call's tensors, and which gradients its backward pass computes."""
        enabled = self.gradients_enabled()
        return Signature(
            tuple(map(self._spec, inputs)),
            tuple(map(self._spec, outputs)),
            tuple(enabled and bool(self.needs_gradient(tensor)) for tensor in inputs),
            enabled and any(self.needs_gradient(p) for p in layer._parameters.values() if p is not None),
        )

    def _spec(self, tensor: Any) -> TensorSpec:
        return TensorSpec(tuple(tensor.shape), self._dtype(tensor))

    def _dtype(self, tensor: Any) -> str:
        return str(tensor.dtype).removeprefix(f"{self.name}.")

    def formula(self, layer: Any) -> Formula | None:
        return next((formula for cls, formula in self.formulas if isinstance(layer, cls)), None)

    def flops(self, layer: Any, call: Signature) -> Flops:
        formula = self.formula(layer)
        if formula is not None:
            return formula(layer, call)
        return Flops(0, 0) if type(layer).__module__.startswith(self.built_in) else Flops(None, None)

    def fields(self, layer: Any, calls: Counter[Signature]) -> dict[str, Any]:
        """Return the fields of a :class:`Layer` that follow from its calls. The caller passes at least one call."""
        per_signature: list[list[int | None]] = []
        for signature, count in calls.items():
            try:
                flops = self.flops(layer, signature)
            except Exception:  # a subclass may have other inputs than the formula expects
                flops = Flops(None, None)
            per_signature.append([None if number is None else number * count for number in flops])
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
        """Yield the description of each layer. ``called`` maps a path to the fields that :meth:`fields` returns."""
        owners: dict[int, str] = {}  # id of a tensor → name of the first parameter that uses the tensor
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
        """Run a model once, in eval mode without gradients. Return the :meth:`fields` of each path."""
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
            path: self.fields(layer, calls[path]) | {"backward_flops": None} for path, layer in layers if path in calls
        }

    def describe(self, model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Architecture:
        """Return the tree of layers. If arguments are given, the model runs once to add calls, tensors and FLOPs."""
        layers = list(self.named(model))
        called = self.run(model, layers, args, kwargs) if args or kwargs else {}
        return Architecture(type(model).__name__, self.name, tuple(self.described(layers, called)))


class OpenCall(NamedTuple):
    """A running call of a layer. ``origins`` is what :meth:`LayerHooks.origins` returns for ``inputs``."""

    hooks: LayerHooks
    label: AbstractContextManager[Any]
    inputs: list[Any]
    origins: Any


class OpenCalls(threading.local):
    """The running calls of this thread. The innermost call is the last item of ``stack``."""

    def __init__(self) -> None:
        self.stack: list[OpenCall] = []


class LayerHooks(ABC):
    """The hooks of one layer. They hold no reference to the layer, so copies of a model share them."""

    framework: ClassVar[LayerFramework]
    calls: ClassVar[OpenCalls]

    def __init__(self, path: str, class_name: str, log: CallLog) -> None:
        self.path = path
        self.class_name = class_name
        self.label = module_label(path, class_name)
        self.log = log

    @abstractmethod
    def origins(self, inputs: list[Any]) -> Any:
        """Return the nodes of the backward graph for the input tensors of a call. In torch, these are ``grad_fn``."""

    @abstractmethod
    def mark(self, outputs: list[Any], origins: Any) -> None:
        """If the call has a backward pass, register a :class:`BackwardMark` at the start of this pass."""

    def __deepcopy__(self, memo: dict[int, Any]) -> LayerHooks:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the hooks with an empty log, because a model may be saved while a profiler runs."""
        return type(self), (self.path, self.class_name, CallLog())

    def before(self, layer: Any, *arguments: Any) -> None:
        """Open the label before the call."""
        if not self.framework.recording():
            return
        try:
            inputs = architecture.tensors(arguments, self.framework.tensor)
            origins = self.origins(inputs)  # read now, because the call may change its inputs in place
            label = self.framework.label(self.label)
            label.__enter__()
            self.calls.stack.append(OpenCall(self, label, inputs, origins))
        except Exception as error:
            _failed("the beginning of a call", error)

    def after(self, layer: Any, *call: Any) -> None:
        """Close the label after the call. The last argument is the output, or None if the call raised."""
        if self.framework.compiling():
            return
        try:
            stack = self.calls.stack
            if not any(opened.hooks is self for opened in stack):
                return
            while True:  # also close the labels of inner calls that did not end
                opened = stack.pop()
                opened.label.__exit__(None, None, None)
                if opened.hooks is self:
                    break
            outputs = architecture.tensors(call[-1], self.framework.tensor)
            self.log.add(self.path, self.framework.signature(layer, opened.inputs, outputs))
            self.mark(outputs, opened.origins)
        except Exception as error:
            _failed("the end of a call", error)


class BackwardMark:
    """Hook that labels the start of a call's backward pass, once."""

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
        except Exception as error:
            _failed("a backward pass", error)


def _failed(what: str, error: Exception) -> None:
    if raised_by_signal(error):
        raise error
    logger.debug("perfkit: %s could not be labelled", what, exc_info=True)
