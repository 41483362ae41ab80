"""Is a function being compiled? Who shows how far it is wants to know: on a new machine that takes 15 s, once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_watching: list[Callable[[bool], None]] = []


@contextmanager
def watched(tell: Callable[[bool], None]) -> Iterator[None]:
    """Within the block ``tell(True)`` is called, in any thread, when something begins to be compiled, and
    ``tell(False)`` when nothing is any more. What numba finds in its cache is not compiled."""
    _watching.append(tell)
    try:
        yield
    finally:
        _watching.remove(tell)


@functools.cache
def listen() -> None:
    """From now on. Loads numba."""
    from numba.core import event

    class Compiling(event.Listener):  # type: ignore[misc]
        """Functions that are called by the one that is compiled may be compiled on the way."""

        depth = 0

        def on_start(self, _: event.Event) -> None:
            self.depth += 1
            if self.depth == 1:
                _tell(True)

        def on_end(self, _: event.Event) -> None:
            self.depth -= 1
            if self.depth == 0:
                _tell(False)

    event.register("numba:compile", Compiling())


def _tell(begun: bool) -> None:
    for tell in list(_watching):
        tell(begun)
