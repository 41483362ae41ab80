"""Import of PyTorch on demand, and hooks on the updates of its optimizers and on labelled ranges."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from perfkit_core.errors import CaptureError


def torch() -> Any:
    """Import torch and return the module. Raises CaptureError if the import fails."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise CaptureError(f"torch cannot be imported ({error})", 'pip install "perfkit[torch]"') from None


@contextmanager
def no_warning_about_cycles() -> Iterator[None]:
    """Hide a warning of torch up to 2.12: a profiler without ``acc_events`` keeps the events of its last cycle only.
    perfkit reads each cycle. ``acc_events=True`` would hide the warning, too, but costs time at the end of a cycle."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning: Profiler clears events", UserWarning)
        yield


def refuse_second_profiler() -> None:
    """Raise CaptureError if a profiler of torch is running."""
    if torch().autograd._profiler_enabled():
        raise CaptureError("another torch profiler is running, and a second one would end it", "use only one")


class Updates:
    """Calls ``before`` and ``after`` around each step of one optimizer: the first that steps in this process."""

    def __init__(self, after: Callable[[], None], before: Callable[[], None] = lambda: None) -> None:
        from torch.optim import optimizer

        self._first: int | None = None
        self._before, self._after = before, after
        self._hooks = (
            optimizer.register_optimizer_step_pre_hook(self._updating),
            optimizer.register_optimizer_step_post_hook(self._updated),
        )

    def end(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _updating(self, optimizer: Any, *_: Any) -> None:
        if self._first == id(optimizer):
            self._before()

    def _updated(self, optimizer: Any, *_: Any) -> None:
        self._first = self._first or id(optimizer)
        if self._first == id(optimizer):
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
