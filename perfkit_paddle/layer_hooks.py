"""The hooks that label the calls of layers.

A call is a RecordEvent. A backward pass is marked by gradient hooks on the tensors that a call returned, so inside the
graph node that it begins with; the mark lists the nodes that belong to the call (see ``layer_nodes``), because Paddle
numbers neither operators nor nodes. RecordEvents must nest: a span over a backward pass, whose nodes take turns with
those of other layers, would lose the whole profile.

Hooks on layers come and go with Paddle's profiler, so that a model has none while nothing records.

Which nodes of Paddle's backward graph a call of a layer made: those between what it returned and what it was given.

Nodes of calls inside belong to those; each such call is passed over in one go, so a node is looked at once.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import paddle
from paddle.profiler import Profiler, ProfilerState, RecordEvent

from perfkit_core.assembly.labels import backward_label, module_label
from perfkit_core.model.architecture import CallLog, Signature, TensorSpec, tensors
from perfkit_core.recording.annotation import Active, install_all, uninstall_all
from perfkit_core.system.failures import logger

_ACCUMULATION: Final = "GradNodeAccumulation"
"""Collects the gradient of a parameter; it lives with the parameter, not with a call."""


class Nodes:
    """The nodes claimed so far by the calls inside one outermost call."""

    def __init__(self) -> None:
        self._inputs: dict[int, list[Any]] = {}
        """Node of a call → the nodes that the call continues at, which are those of its inputs."""
        self._kept: list[Any] = []
        """All nodes seen: their addresses are their names, so none may go meanwhile."""

    def of(self, tensors: Iterable[Any]) -> frozenset[int]:
        """Addresses of the nodes that made some tensors."""
        return frozenset(self._address(node) for tensor in tensors if (node := tensor.grad_fn) is not None)

    def claim(self, returned: list[Any], inputs: frozenset[int]) -> tuple[list[str], list[Any]]:
        """Names of the nodes that a call made itself, and those of the returned tensors that are not just passed on."""
        made = [(tensor, node, self._address(node)) for tensor in returned if (node := tensor.grad_fn) is not None]
        made = [one for one in made if one[2] not in inputs and one[1].name() != _ACCUMULATION]
        ends: list[Any] = []
        own = dict(self._walk([node for _, node, _ in made], inputs, ends))
        for address in (*own, *(address for _, _, address in made)):
            self._inputs[address] = ends
        return list(own.values()), [tensor for tensor, _, _ in made]

    def _walk(self, nodes: list[Any], inputs: frozenset[int], ends: list[Any]) -> Iterator[tuple[int, str]]:
        """Address and name of the nodes that no call inside made; the nodes of the inputs go into ``ends``."""
        seen = set()
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
                yield address, node.name()
                nodes.extend(below for below in node.next_functions if below is not None)

    def _address(self, node: Any) -> int:
        self._kept.append(node)
        return int(node.node_ptr())


_RECORDS = (ProfilerState.RECORD, ProfilerState.RECORD_AND_RETURN)
_running: list[Profiler] = []
"""The profilers between start() and stop(): one, as a process can have only one."""


def recording() -> bool:
    """Whether a label would be recorded: not while the schedule waits, nor where a static graph is built."""
    return bool(_running) and _running[-1].current_state in _RECORDS and paddle.in_dynamic_mode()


def watch(active: Active) -> None:
    """Install hooks whenever a profiler starts."""
    if hasattr(Profiler, "_perfkit_original"):
        return
    originals = (Profiler.start, Profiler.stop)

    def start(profiler: Profiler) -> None:
        originals[0](profiler)
        if not profiler.timer_only:
            _running.append(profiler)
            install_all(active)

    def stop(profiler: Profiler) -> None:
        try:
            originals[1](profiler)
        finally:
            _running.clear()
            uninstall_all(active)

    Profiler._perfkit_original = originals
    Profiler.start, Profiler.stop = start, stop


def unwatch(active: Active) -> None:
    """Give Paddle its methods back once nothing is annotated."""
    if not active and hasattr(Profiler, "_perfkit_original"):
        Profiler.start, Profiler.stop = Profiler._perfkit_original
        del Profiler._perfkit_original


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
        self.label = module_label(path, class_name)
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


_mark_name = functools.lru_cache(maxsize=4096)(backward_label)


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
