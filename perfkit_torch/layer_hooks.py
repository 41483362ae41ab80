"""The hooks that label the calls of layers.

Labels are made by torch's own fast record function (0.6 µs a label while recording, against 5 µs for the public
``record_function``), where it exists. A backward pass is marked by a hook on the graph node that a call ended with:
unlike ``register_full_backward_hook`` that changes neither the graph nor what may be done in place.

Hooks on layers come and go with torch's profiler, so that a model has none while nothing records.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import torch

from perfkit_core.assembly.labels import backward_label, module_label, parse_module_label
from perfkit_core.model.architecture import CallLog, Signature, TensorSpec, tensors
from perfkit_core.recording.annotation import Active, install_all, uninstall_all
from perfkit_core.system.failures import logger

_open = threading.local()
"""``stack``: the calls that this thread is in."""

_Label: Callable[[str], Any] = getattr(torch._C._profiler, "_RecordFunctionFast", torch.profiler.record_function)


class _Call(NamedTuple):
    """A call that goes on: its running label, tensors it was given, and the graph nodes that had made them."""

    hooks: LayerHooks
    label: Any
    inputs: list[Any]
    nodes: list[Any]


class LayerHooks:
    """The hooks of one layer. Copies of a model share them: they hold nothing of it."""

    def __init__(self, path: str, class_name: str, log: CallLog) -> None:
        self.path = path
        self.label = module_label(path, class_name)
        self.mark = backward_label(path, class_name)
        self.log = log

    def __deepcopy__(self, memo: dict[int, Any]) -> LayerHooks:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """A model that is saved while a profiler runs takes hooks along that only label."""
        found = parse_module_label(self.label)
        return LayerHooks, (self.path, found.class_name if found else "", CallLog())

    def before(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Forward pre-hook."""
        if _silent() or not torch.autograd._profiler_enabled():
            return
        try:
            inputs = tensors((args, kwargs), torch.Tensor)
            nodes = [tensor.grad_fn for tensor in inputs]  # now: what is changed in place has another one afterwards
            label = _Label(self.label)
            label.__enter__()
            _stack().append(_Call(self, label, inputs, nodes))
        except Exception:
            _failed("the begin of a call")

    def after(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Forward hook; also called when the layer raised, without an output."""
        if _silent():
            return
        try:
            call = _close(self)
            if call is not None:
                outputs = tensors(output, torch.Tensor)
                self.log.add(self.path, signature(module, call.inputs, outputs))
                _mark(self, outputs, call.nodes)
        except Exception:
            _failed("the end of a call")


class _Mark:
    """Hook before the graph nodes in which a call's backward pass may begin: marks the first of them."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.done = False

    def __call__(self, *_: Any) -> None:
        try:
            if not self.done and torch.autograd._profiler_enabled():
                self.done = True
                with _Label(self.label):
                    pass
        except Exception:
            _failed("a backward pass")


def install(module: Any, path: str, log: CallLog) -> Iterator[Any]:
    """Hook a layer; handles with ``remove()``. A layer that is hooked already keeps the hooks it has."""
    if any(isinstance(getattr(hook, "__self__", None), LayerHooks) for hook in module._forward_pre_hooks.values()):
        return
    hooks = LayerHooks(path, type(module).__name__, log)
    yield module.register_forward_pre_hook(hooks.before, prepend=True, with_kwargs=True)
    yield module.register_forward_hook(hooks.after, with_kwargs=True, always_call=True)


def _silent() -> bool:
    """Where labels would end up in a compiled or traced graph."""
    return bool(torch.compiler.is_compiling() or torch.jit.is_tracing())


def _stack() -> list[_Call]:
    try:
        stack: list[_Call] = _open.stack
    except AttributeError:
        stack = _open.stack = []
    return stack


def _close(hooks: LayerHooks) -> _Call | None:
    """End the label of a call and those left open inside it. None if it has no label."""
    stack = _stack()
    if not any(call.hooks is hooks for call in stack):
        return None
    while True:
        call = stack.pop()
        call.label.__exit__(None, None, None)
        if call.hooks is hooks:
            return call


def _mark(hooks: LayerHooks, outputs: list[Any], before: list[Any]) -> None:
    """Hook the node that the backward pass of a call begins with, if the call made any: engines take the last first.
    And those before it, because a change in place of a view replaces the node that made it."""
    made = [tensor.grad_fn for tensor in outputs if tensor.grad_fn is not None]
    made = [node for node in made if not _among(node, before)]
    if made and torch.autograd._profiler_enabled():
        last = max(made, key=lambda node: node._sequence_nr() if hasattr(node, "_sequence_nr") else 0)
        mark = _Mark(hooks.mark)
        last.register_prehook(mark)
        for node, _ in last.next_functions:
            if node is not None and node.next_functions and not _among(node, before):
                node.register_prehook(mark)


def _among(node: Any, nodes: list[Any]) -> bool:
    return any(node is one for one in nodes)


def signature(module: Any, inputs: list[Any], outputs: list[Any]) -> Signature:
    """The tensors of a call, and which gradients its backward pass will compute."""
    enabled = torch.is_grad_enabled()
    return Signature(
        tuple(map(_spec, inputs)),
        tuple(map(_spec, outputs)),
        enabled and any(tensor.requires_grad for tensor in inputs),
        enabled and any(p.requires_grad for p in module._parameters.values() if p is not None),
    )


def _spec(tensor: Any) -> TensorSpec:
    return TensorSpec(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


def _failed(what: str) -> None:
    logger.debug("perfkit: %s could not be labelled", what, exc_info=True)


_ORIGINALS: Final = "_perfkit_originals"
"""Attribute of ``torch.autograd.profiler`` for the functions that :func:`watch` replaces there: what torch itself calls
when a profiler begins and stops to record, whoever started it."""


def watch(active: Active) -> None:
    """Install hooks whenever a profiler begins to record, and now if one does."""
    profiler = torch.autograd.profiler
    if not hasattr(profiler, "_run_on_profiler_start"):  # then hooks stay, and ask whether a profiler records
        install_all(active)
        return
    if not hasattr(profiler, _ORIGINALS):
        on_start, on_stop = profiler._run_on_profiler_start, profiler._run_on_profiler_stop

        def started() -> None:
            on_start()
            install_all(active)

        def stopped() -> None:
            uninstall_all(active)
            on_stop()

        setattr(profiler, _ORIGINALS, (on_start, on_stop))
        profiler._run_on_profiler_start, profiler._run_on_profiler_stop = started, stopped
    if torch.autograd._profiler_enabled():
        install_all(active)


def unwatch(active: Active) -> None:
    """Give torch its functions back once nothing is annotated."""
    profiler = torch.autograd.profiler
    if not active and hasattr(profiler, _ORIGINALS):
        profiler._run_on_profiler_start, profiler._run_on_profiler_stop = getattr(profiler, _ORIGINALS)
        delattr(profiler, _ORIGINALS)
