"""When has an optimizer updated the parameters? Noticed by wrapping its methods, as Paddle has no hook for it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, Final

from perfkit_paddle import framework

_STEPPING: Final = ("step", "minimize")
"""Methods that update the parameters once."""


class Updates:
    """Calls ``updated`` after each update of the first optimizer that updates; nested calls count once.

    In a static graph ``minimize()`` only adds operators, and nothing is called.
    """

    def __init__(self, updated: Callable[[], None]) -> None:
        self._updated = updated
        self._optimizer: Any = None
        self._inside = False
        self._undo: list[Callable[[], None]] = []
        self._base = framework.paddle().optimizer.Optimizer
        self._watch_new_optimizers()
        for cls in _family(self._base):
            self._wrap(cls)

    def end(self) -> None:
        """Give the optimizers their methods back."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def _stepped(self, optimizer: Any) -> None:
        """Called after each outermost update."""
        if self._optimizer is None:
            self._optimizer = optimizer
        if optimizer is self._optimizer:
            self._updated()

    def _watch_new_optimizers(self) -> None:
        """Classes that a script defines later are wrapped when their first object is made."""
        original = self._base.__init__

        @functools.wraps(original)
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            for cls in type(optimizer).__mro__:
                if issubclass(cls, self._base):
                    self._wrap(cls)
            original(optimizer, *args, **kwargs)

        self._replace(self._base, "__init__", init)

    def _wrap(self, cls: type) -> None:
        for name in _STEPPING:
            method = vars(cls).get(name)
            if callable(method) and not getattr(method, "_perfkit", False):
                self._replace(cls, name, self._counting(method))

    def _counting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def counted(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            outermost, self._inside = not self._inside, True
            try:
                return method(optimizer, *args, **kwargs)
            finally:
                if outermost:
                    self._inside = False
                    if framework.paddle().in_dynamic_mode():
                        self._stepped(optimizer)

        counted._perfkit = True  # type: ignore[attr-defined]
        return counted

    def _replace(self, cls: type, name: str, value: Any) -> None:
        self._undo.append(functools.partial(setattr, cls, name, vars(cls)[name]))
        setattr(cls, name, value)


def _family(cls: type) -> Iterator[type]:
    yield cls
    children: list[type] = type.__subclasses__(cls)
    for child in children:
        yield from _family(child)
