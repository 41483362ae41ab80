"""The hooks that label the calls of layers.

A call is a RecordEvent. A backward pass is marked by gradient hooks on the tensors that a call returned, so inside the
graph node that it begins with; the mark lists the nodes that belong to the call (see ``layer_nodes``), because Paddle
numbers neither operators nor nodes. RecordEvents must nest: a span over a backward pass, whose nodes take turns with
those of other layers, would lose the whole profile.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import paddle
from paddle.profiler import RecordEvent

from perfkit_core.layers import module_labels
from perfkit_core.layers.layer_calls import CallLog, Signature, TensorSpec, tensors
from perfkit_core.recording.capture import logger
from perfkit_paddle.layer_nodes import Nodes
from perfkit_paddle.layer_watch import recording


class _Call(NamedTuple):
    """A call that goes on: its open event, tensors it was given, and the addresses of the nodes that had made them."""

    hooks: LayerHooks
    event: Any
    inputs: list[Any]
    nodes: frozenset[int]


class _Thread(threading.local):
    """``stack``: the calls that this thread is in; ``nodes``: those that the calls in the outermost one made."""

    def __init__(self) -> None:
        self.stack: list[_Call] = []
        self.nodes = Nodes()


_thread = _Thread()


class LayerHooks:
    """The hooks of one layer. Copies of a model share them: they hold nothing of it."""

    def __init__(self, path: str, class_name: str, log: CallLog) -> None:
        self.path = path
        self.class_name = class_name
        self.label = module_labels.encode(path, class_name)
        self.log = log

    def __deepcopy__(self, memo: dict[int, Any]) -> LayerHooks:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """A layer that is saved while a profiler runs takes hooks along that only label."""
        return LayerHooks, (self.path, self.class_name, CallLog())

    def before(self, layer: Any, args: Any, kwargs: Any = None) -> None:
        """Forward pre-hook."""
        if not recording():
            return
        try:
            inputs = tensors((args, kwargs), paddle.Tensor)
            nodes = _thread.nodes.of(inputs)  # now: what is changed in place has another one afterwards
            event = RecordEvent(self.label)
            event.begin()
            _thread.stack.append(_Call(self, event, inputs, nodes))
        except Exception:
            _failed("the begin of a call")

    def after(self, layer: Any, args: Any, *rest: Any) -> None:
        """Forward post-hook; also called when the layer raised, where Paddle can do that."""
        if not _thread.stack:
            return
        try:
            call = _close(self)
            if call is not None:
                outputs = tensors(rest[-1], paddle.Tensor)
                self.log.add(self.path, signature(layer, call.inputs, outputs))
                self._mark(outputs, call.nodes)
            if not _thread.stack:
                _thread.nodes = Nodes()
        except Exception:
            _failed("the end of a call")

    def _mark(self, returned: list[Any], inputs: frozenset[int]) -> None:
        """Have the call's backward pass marked where it begins, if the call made any node."""
        own, first = _thread.nodes.claim([tensor for tensor in returned if not tensor.stop_gradient], inputs)
        if first:
            mark = _Mark(_mark_name(self.path, self.class_name, tuple(own)))
            for tensor in first:
                tensor.register_hook(mark)


class _Mark:
    """Gradient hook of the tensors that a call returned: marks the first gradient that arrives, changes none."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.done = False

    def __call__(self, gradient: Any) -> None:
        if self.done or not recording():
            return
        self.done = True
        with RecordEvent(self.label):
            pass


def install(layer: Any, path: str, log: CallLog) -> Iterator[Any]:
    """Hook a layer; handles with ``remove()``. A layer that is hooked already keeps the hooks it has."""
    if any(isinstance(getattr(hook, "__self__", None), LayerHooks) for hook in layer._forward_pre_hooks.values()):
        return
    hooks = LayerHooks(path, type(layer).__name__, log)
    yield layer.register_forward_pre_hook(hooks.before, **_known(layer.register_forward_pre_hook, "prepend"))
    yield after_call(layer, hooks.after, "always_call")


def after_call(layer: Any, hook: Any, *options: str) -> Any:
    """Register a hook that gets the layer, positional and (not in 2.6) keyword arguments, and the output."""
    return layer.register_forward_post_hook(hook, **_known(layer.register_forward_post_hook, *options))


def _known(method: Any, *wanted: str) -> dict[str, bool]:
    """Those options that this Paddle has; 2.6 has none."""
    return dict.fromkeys({"with_kwargs", *wanted} & set(inspect.signature(method).parameters), True)


_mark_name = functools.lru_cache(maxsize=4096)(module_labels.encode_backward)


def _close(hooks: LayerHooks) -> _Call | None:
    """End the event of a call and those left open inside it. None if it has no event."""
    if not any(call.hooks is hooks for call in _thread.stack):
        return None
    while True:
        call = _thread.stack.pop()
        call.event.end()
        if call.hooks is hooks:
            return call


def signature(layer: Any, inputs: list[Any], outputs: list[Any]) -> Signature:
    """The tensors of a call, and which gradients its backward pass will compute."""
    enabled = paddle.is_grad_enabled()
    return Signature(
        tuple(map(_spec, inputs)),
        tuple(map(_spec, outputs)),
        enabled and any(not tensor.stop_gradient for tensor in inputs),
        enabled and any(not p.stop_gradient for p in layer._parameters.values() if p is not None),
    )


def _spec(tensor: Any) -> TensorSpec:
    return TensorSpec(tuple(tensor.shape), str(tensor.dtype).removeprefix("paddle."))


def _failed(what: str) -> None:
    logger.debug("perfkit: %s could not be labelled", what, exc_info=True)
