"""Import of Paddle on demand, and hooks on the updates of its optimizers, on executors and on labelled ranges."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from perfkit_core.base.system import packages
from perfkit_core.errors import CaptureError
from perfkit_core.recording import signals
from perfkit_paddle import wheels

_STEPPING: Final = ("step", "minimize")


def paddle() -> Any:
    """Import Paddle and return the module. Logs packages that do not fit together, once. Raises CaptureError if the
    import fails."""
    wheels.tell_mismatches()
    try:
        return importlib.import_module("paddle")
    except ImportError as error:
        hint = 'pip install "perfkit[paddle]", or the wheel of paddlepaddle-gpu for your CUDA version'
        raise CaptureError(f"PaddlePaddle cannot be imported ({error})", hint) from None


def profiler() -> Any:
    paddle()
    return importlib.import_module("paddle.profiler")


def only_profiler(of_script: bool = False, **arguments: Any) -> Any:
    """Return a new Profiler. Raises CaptureError if another one exists in this process, or if the script is recorded
    and the Profiler is not ``of_script``."""
    kind = profiler().Profiler
    recorded = not of_script and signals.OtherProfilerPatch.active(kind, "__init__")
    if recorded or (created := kind(**arguments)).profiler is None:
        raise CaptureError("another Profiler exists in this process, and Paddle allows only one", "use only one")
    return created


@contextlib.contextmanager
def without_benchmark() -> Iterator[None]:
    """Keep a method of perfkit's own Profiler away from Paddle's benchmark, which Profilers share with the script: it
    would print a summary to the script's output when the Profiler stops, and count the Profiler's steps."""
    from paddle.profiler import timer

    benchmark = timer.benchmark()
    hooks, benchmark.hooks = benchmark.hooks, {}
    try:
        yield
    finally:
        benchmark.hooks = hooks


class Updates:
    """Calls ``after`` once per update of one optimizer, the one that makes the first update. Calls ``made`` when the
    script has made an optimizer; ``optimizers`` counts them, and runs of programs. Paddle offers no hooks, so
    ``step()`` and ``minimize()`` of all optimizers are wrapped. In a static graph, ``minimize()`` only adds operators:
    there, a run of the first program with feeds or fetches counts as an update."""

    def __init__(self, after: Callable[[], None], made: Callable[[], None] = lambda: None) -> None:
        self._after = after
        base = paddle().optimizer.Optimizer
        self.optimizers = packages.instances(base)  # those of earlier cells of a notebook
        self._updater: Any = None
        self._inside = threading.local()  # its attributes say whether a thread is inside a method
        self._undo: list[Callable[[], None]] = []
        original = base.__init__

        @functools.wraps(original)
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            for cls in type(optimizer).__mro__:  # classes that the script defines later are not in the loop below
                if issubclass(cls, base):
                    self._wrap(cls)
            original(optimizer, *args, **kwargs)
            self.optimizers += 1
            made()

        self._replace(base, "__init__", init)
        classes: list[type] = [base]
        while classes:
            cls = classes.pop()
            self._wrap(cls)
            classes += type.__subclasses__(cls)
        executor = paddle().static.Executor
        self._replace(executor, "run", self._executing(executor.run))

    def restart(self) -> None:
        self._updater = None

    def end(self) -> None:
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def _wrap(self, cls: type) -> None:
        for name in _STEPPING:
            method = vars(cls).get(name)
            if callable(method) and not getattr(method, "_perfkit", False):
                self._replace(cls, name, self._watched(method))

    def _watched(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def watched(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            inside = vars(self._inside)
            outermost = not inside
            inside["step"] = True
            try:
                return method(optimizer, *args, **kwargs)
            finally:
                if outermost:
                    inside.clear()
                    if paddle().in_dynamic_mode():
                        self._updated(optimizer)

        watched._perfkit = True  # type: ignore[attr-defined]
        return watched

    def _executing(self, run: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(run)

        @functools.wraps(run)
        def executed(*args: Any, **kwargs: Any) -> Any:
            result = run(*args, **kwargs)
            arguments = signature.bind(*args, **kwargs).arguments
            if arguments.get("feed") or arguments.get("fetch_list"):  # the startup program has neither
                self.optimizers += 1
                program = arguments.get("program")
                self._updated(paddle().static.default_main_program() if program is None else program)
            return result

        return executed

    def _updated(self, updater: Any) -> None:
        if self._updater is None:
            self._updater = updater
        if updater is self._updater:
            self._after()

    def _replace(self, cls: type, name: str, value: Any) -> None:
        self._undo.append(functools.partial(setattr, cls, name, vars(cls)[name]))
        setattr(cls, name, value)


class Ranges:
    """Calls ``before`` and ``after`` around each range of this name that the script labels with ``RecordEvent``."""

    def __init__(self, name: str, after: Callable[[], None], before: Callable[[], None] = lambda: None) -> None:
        self._label = profiler().RecordEvent
        begin, end = self._originals = self._label.begin, self._label.end

        def begun(label: Any) -> None:
            if label.name == name:
                before()
            begin(label)

        def ended(label: Any) -> None:
            end(label)
            if label.name == name:
                after()

        self._label.begin, self._label.end = begun, ended

    def end(self) -> None:
        self._label.begin, self._label.end = self._originals
