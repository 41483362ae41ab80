"""Import of PyTorch on demand, and hooks on the updates of its optimizers and on labelled ranges."""

from __future__ import annotations

import functools
import importlib
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from perfkit_core.base.system import packages
from perfkit_core.errors import CaptureError

_LOG_LEVEL: Final = "KINETO_LOG_LEVEL"
_EVENTS_OF_PARAMETER, _EVENTS_OF_STATE = 10, 9
"""Events in a step for each parameter of an optimizer, and for each tensor of its state: SGD has none, Adam three."""


def torch() -> Any:
    """Import torch and return the module. Raises CaptureError if the import fails."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise CaptureError(f"torch cannot be imported ({error})", 'pip install "perfkit[torch]"') from None


@contextmanager
def quiet_start() -> Iterator[None]:
    """Hide what torch's profiler prints when it is prepared or started:

    - a line of kineto at each start and stop. kineto reads its variable when the first profiler is prepared
    - a warning of torch up to 2.12: a profiler without ``acc_events`` keeps the events of its last cycle only. perfkit
      reads each cycle. ``acc_events=True`` would hide the warning, too, but costs time at the end of a cycle"""
    before = os.environ.get(_LOG_LEVEL)
    os.environ[_LOG_LEVEL] = before or "6"
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Warning: Profiler clears events", UserWarning)
            yield
    finally:
        if before is None:
            del os.environ[_LOG_LEVEL]


def refuse_second_profiler() -> None:
    """Raise CaptureError if a profiler of torch is running."""
    if torch().autograd._profiler_enabled():
        raise CaptureError("another torch profiler is running, and a second one would end it", "use only one")


def all_threads() -> dict[str, Any]:
    """Return the argument with which torch's profiler records all threads, and may be stopped by another thread than
    the one that started it. Return no arguments for versions of torch that cannot do so (before 2.8)."""
    try:
        config = torch()._C._profiler._ExperimentalConfig(profile_all_threads=True)
    except (AttributeError, TypeError):
        return {}
    return {"experimental_config": config}


class _Thread(threading.local):
    """``depth`` of step() in itself, and whether the first optimizer has stepped in it."""

    depth, ended = 0, False


class Updates:
    """Calls ``after`` after each step of one optimizer: the first that steps in this process. If the script has deleted
    it, as after a fold of a cross-validation, and ``fixed`` is not set, the next takes its place. Calls ``made`` when
    the script has made an optimizer; ``optimizers`` counts them.

    torch calls its hooks within the range with which it labels ``step()``. ``after`` must not run within this range: it
    may stop or start a profiler. So the method is wrapped, too. Of an optimizer whose method was copied before, for
    example by a scheduler of an earlier cell of a notebook, it runs within the range."""

    def __init__(self, after: Callable[[], None], made: Callable[[], None] = lambda: None) -> None:
        from torch.optim import optimizer

        base = optimizer.Optimizer
        self.optimizers = 0
        self._first: weakref.ref[Any] | None = None
        self.fixed = False
        self._after = torch()._disable_dynamo(lambda: after())  # a compiled step() gets one break of its graph
        self._thread = _Thread()
        self._hook = optimizer.register_optimizer_step_post_hook(self._updated)
        self._undo: list[Callable[[], None]] = []
        original = base.__init__

        @functools.wraps(original)
        def init(instance: Any, *args: Any, **kwargs: Any) -> None:
            original(instance, *args, **kwargs)
            self._wrap(type(instance))
            self.optimizers += 1
            made()

        self._replace(base, "__init__", init)
        classes: list[type] = [base]
        while classes:
            cls = classes.pop()
            if getattr(vars(cls).get("step"), "hooked", False):  # torch has labelled it, for an earlier object
                self.optimizers = self.optimizers or packages.instances(base)  # of earlier cells of a notebook
                self._wrap(cls)
            classes += type.__subclasses__(cls)

    def restart(self) -> None:
        self._first = None

    def end(self) -> None:
        self._hook.remove()
        while self._undo:
            self._undo.pop()()

    def _replace(self, cls: type, name: str, value: Any) -> None:
        self._undo.append(functools.partial(setattr, cls, name, vars(cls)[name]))
        setattr(cls, name, value)

    def _wrap(self, cls: type) -> None:
        method = vars(cls).get("step")
        if not callable(method) or hasattr(method, "_perfkit"):
            return
        compiling = torch().compiler.is_compiling

        @functools.wraps(method)
        def step(*args: Any, **kwargs: Any) -> Any:
            if compiling():
                return method(*args, **kwargs)
            thread = self._thread
            thread.depth += 1
            try:
                return method(*args, **kwargs)
            finally:
                thread.depth -= 1
                if thread.ended and not thread.depth:
                    thread.ended = False
                    self._after()

        step._perfkit = True  # type: ignore[attr-defined]
        self._replace(cls, "step", step)

    def _updated(self, optimizer: Any, *_: Any) -> None:
        if self._first is None or (self._first() is None and not self.fixed):
            self._first = weakref.ref(optimizer)
        if self._first() is not optimizer:
            return
        if self._thread.depth:
            self._thread.ended = True
        else:
            self._after()


class Ranges:
    """Calls ``before`` and ``after`` around each range of this name that the script labels with ``record_function``."""

    def __init__(self, name: str, after: Callable[[], None], before: Callable[[], None]) -> None:
        self._label = torch().profiler.record_function
        enter, leave = self._originals = self._label.__enter__, self._label.__exit__

        def entered(label: Any) -> Any:
            if label.name == name:
                before()
            return enter(label)

        def left(label: Any, *error: Any) -> Any:
            result = leave(label, *error)
            if label.name == name:
                after()
            return result

        self._label.__enter__, self._label.__exit__ = entered, left

    def end(self) -> None:
        self._label.__enter__, self._label.__exit__ = self._originals


class UpdateEvents:
    """While ``counts`` is set, ``total`` counts the events of the updates of all optimizers, as far as they do not
    belong to differentiable operators: for each parameter, the accumulation of its gradient, and the arithmetic of the
    update on it and on each tensor of its state. Compiled optimizers have few events."""

    def __init__(self) -> None:
        self.counts, self.total = False, 0

    def __call__(self, optimizer: Any, *_: Any) -> None:
        if torch().compiler.is_compiling() or not self.counts:
            return
        with suppress(Exception):  # an optimizer may keep anything in its state
            for group in optimizer.param_groups:
                parameters = group["params"]
                self.total += _EVENTS_OF_PARAMETER * len(parameters)
                if parameters[0].is_cpu:  # on other devices, one operator updates all
                    state = (1 if group.get("fused") else len(optimizer.state.get(each, ())) for each in parameters)
                    self.total += _EVENTS_OF_STATE * sum(state)


@functools.cache
def update_events() -> UpdateEvents:
    """Return the counter of this process. Its hook stays: torch.compile would compile an optimizer again without it."""
    from torch.optim import optimizer

    counter = UpdateEvents()
    optimizer.register_optimizer_step_post_hook(counter)
    return counter
