"""Import of Paddle on demand, and hooks on the updates of its optimizers."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, Final

from perfkit_core.errors import CaptureError

_STEPPING: Final = ("step", "minimize")


def paddle() -> Any:
    """Import Paddle and return the module. Raises CaptureError if the import fails."""
    try:
        return importlib.import_module("paddle")
    except ImportError as error:
        hint = 'pip install "perfkit[paddle]", or the wheel of paddlepaddle-gpu for your CUDA version'
        raise CaptureError(f"PaddlePaddle cannot be imported ({error})", hint) from None


def profiler() -> Any:
    paddle()
    return importlib.import_module("paddle.profiler")


class Updates:
    """Calls ``after`` once per update of one optimizer, the one that makes the first update. Paddle offers no hooks,
    so ``step()`` and ``minimize()`` of all optimizers are wrapped. A static graph is not observed, because
    ``minimize()`` only adds operators to it."""

    def __init__(self, after: Callable[[], None]) -> None:
        self._after = after
        self._optimizer: Any = None
        self._inside = False
        self._undo: list[Callable[[], None]] = []
        base = paddle().optimizer.Optimizer
        original = base.__init__

        @functools.wraps(original)
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            for cls in type(optimizer).__mro__:  # classes that the script defines later are not in the loop below
                if issubclass(cls, base):
                    self._wrap(cls)
            original(optimizer, *args, **kwargs)

        self._replace(base, "__init__", init)
        classes: list[type] = [base]
        while classes:
            cls = classes.pop()
            self._wrap(cls)
            classes += type.__subclasses__(cls)

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
            outermost, self._inside = not self._inside, True
            try:
                return method(optimizer, *args, **kwargs)
            finally:
                if outermost:
                    self._inside = False
                    if paddle().in_dynamic_mode():
                        if self._optimizer is None:
                            self._optimizer = optimizer
                        if optimizer is self._optimizer:
                            self._after()

        watched._perfkit = True  # type: ignore[attr-defined]
        return watched

    def _replace(self, cls: type, name: str, value: Any) -> None:
        self._undo.append(functools.partial(setattr, cls, name, vars(cls)[name]))
        setattr(cls, name, value)
