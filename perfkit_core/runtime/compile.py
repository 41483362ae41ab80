"""Functions that numba compiles, where there is enough for them to do (docs/decisions/0011).

A process begins without numba, which takes a third of a second to load. It takes to it for good as soon as Python has
gone through as many cells of arrays as that time is worth. Both ways give the same results.

Is a function being compiled? Who shows how far it is wants to know: on a new machine that takes 15 s, once.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any, Final

import numpy as np

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


ENOUGH_CELLS: Final = 2_000_000
"""What a process goes through in Python before it loads numba: a cell takes 0.1 to 0.2 µs, that is as long."""

_OWN: Final = __name__.partition(".")[0] + "."


class Interpreted:
    """What this process has gone through without numba; ENOUGH_CELLS once we have loaded it, whatever for."""

    cells = 0


def compiled(function: Any = None, *, steps: int = 1) -> Any:
    """The function, compiled as soon as that is worth it: a function of a module, of positional arguments, that loops
    over arrays, its work in proportion to their cells. Integers wrap around either way. It may call others of its kind,
    but not itself. ``steps``: for how many cells one counts where the loop searches or hashes for each."""
    return functools.partial(_Function, steps=steps) if function is None else _Function(function, steps)


def compiled_at_once(function: Any, **options: Any) -> Any:
    """The function, compiled when it is first called, run without Python's lock. ``options`` are those of
    ``numba.njit``.

    numba keeps what it compiled beside the module, else in the user's cache, or in ``NUMBA_CACHE_DIR``. Where none can
    be written (a system's Python, a container without a home) every process compiles again.
    """
    from numba import njit

    Interpreted.cells = ENOUGH_CELLS
    listen()
    try:
        return _stamped(njit(cache=True, nogil=True, **options)(function), function)
    except RuntimeError:  # numba has no error of its own for "no locator available"
        return njit(nogil=True, **options)(function)


def _stamped(dispatcher: Any, function: Any) -> Any:
    """With a cache that holds only as long as what the function calls, and the numbers that it knows, stay the same:
    numba looks at the text of its own module alone. Where numba has other names inside, nothing is changed."""
    file = _cache_file(dispatcher)
    if file is not None:
        parts = [_part(one) for one in _mentioned(function)]
        file._source_stamp = (file._source_stamp, hashlib.sha256(repr(parts).encode()).hexdigest())
    return dispatcher


def _cache_file(dispatcher: Any) -> Any:
    file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    return file if hasattr(file, "_source_stamp") else None


def _mentioned(function: Any) -> list[Any]:
    """What the names in a function stand for: in its module, and in modules that it names."""
    names = function.__code__.co_names
    known = [function.__globals__[name] for name in names if name in function.__globals__]
    modules = [vars(one) for one in known if isinstance(one, ModuleType) and one.__name__.startswith(_OWN)]
    return known + [module[name] for module in modules for name in names if name in module]


def _part(mentioned: Any) -> Any:
    """What tells one version of it from another, as far as it becomes part of who mentions it."""
    if isinstance(mentioned, int | float | bytes | str | tuple | np.generic):
        return mentioned
    file = _cache_file(mentioned._compiled if isinstance(mentioned, _Function) else mentioned)
    return file and file._source_stamp


class _Function:
    """A function in both ways."""

    def __init__(self, function: Any, steps: int) -> None:
        functools.update_wrapper(self, function)
        self._function, self._steps = function, steps

    def __call__(self, *arguments: Any) -> Any:
        if Interpreted.cells < ENOUGH_CELLS:
            more = self._steps * sum(one.size for one in arguments if isinstance(one, np.ndarray))
            Interpreted.cells = max(Interpreted.cells + more, Interpreted.cells)  # numba may be here since, by a thread
            if Interpreted.cells < ENOUGH_CELLS:
                with np.errstate(over="ignore"):
                    return self._interpreted(*arguments)
        return self._compiled(*arguments)

    @functools.cached_property
    def _interpreted(self) -> Any:
        """As Python runs it: what it calls is not asked again which way to go."""
        code, names = self._function.__code__, self._function.__globals__
        called = {name: names[name] for name in code.co_names if isinstance(names.get(name), _Function)}
        own = names | {name: one._interpreted for name, one in called.items()}
        return FunctionType(code, own, argdefs=self._function.__defaults__)

    @functools.cached_property
    def _compiled(self) -> Any:
        return compiled_at_once(self._function)

    def __reduce__(self) -> str:
        return str(self._function.__qualname__)

    @property
    def _numba_type_(self) -> Any:
        """What numba asks of a name that compiled code calls."""
        return self._compiled._numba_type_
