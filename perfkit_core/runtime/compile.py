"""Functions that numba compiles once there is enough work for them (docs/decisions/0011). Loading numba takes a third
of a second, so a process begins in Python, and switches to numba for good after as many array cells as take that time.
Both ways return the same results."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any, Final

import numpy as np

ENOUGH_CELLS: Final = 2_000_000
"""Array cells that take Python as long as loading numba does, at 0.1 to 0.2 µs each."""

_OWN: Final = __name__.partition(".")[0] + "."
_watching: list[Callable[[bool], None]] = []


class Interpreted:
    """Number of cells that this process has handled without numba; at least ENOUGH_CELLS once numba is loaded."""

    cells = 0


@contextmanager
def watched(tell: Callable[[bool], None]) -> Iterator[None]:
    """Call ``tell(True)``, in any thread, when a compilation begins within the block, and ``tell(False)`` when the last
    one ends, for a progress display. Functions in numba's cache are not compiled."""
    _watching.append(tell)
    try:
        yield
    finally:
        _watching.remove(tell)


@functools.cache
def listen() -> None:
    """Start reporting numba compilations (imports numba)."""
    from numba.core import event

    class Compiling(event.Listener):  # type: ignore[misc]
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


def compiled(function: Any = None, *, steps: int = 1) -> Any:
    """Compile a function once numba is worth loading.

    The function must be at module level, take positional arguments, and loop over arrays with work in proportion to
    their cells. Integers wrap around in both forms. It may call other ``compiled`` functions, but not itself.
    ``steps``: cells that each cell counts for, if the loop searches or hashes.
    """
    return functools.partial(_Function, steps=steps) if function is None else _Function(function, steps)


def compiled_at_once(function: Any, **options: Any) -> Any:
    """Compile a function at its first call, to run without Python's lock. ``options`` are those of ``numba.njit``.
    numba caches it beside the module, in the user's cache or in ``NUMBA_CACHE_DIR``. If none is writable (a system's
    Python, a container without a home), every process compiles again."""
    from numba import njit

    Interpreted.cells = ENOUGH_CELLS
    listen()
    try:
        dispatcher = njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:  # numba has no error of its own for "no locator available"
        return njit(nogil=True, **options)(function)
    file = _cache_file(dispatcher)
    if file is not None:
        file._source_stamp = (file._source_stamp, _digest(function))
    return dispatcher


def _cache_file(dispatcher: Any) -> Any:
    """Return the cache file of a compiled function, None if numba's internals differ."""
    file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    return file if hasattr(file, "_source_stamp") else None


def _digest(function: Any) -> str:
    """Digest the constants and compiled functions that a function uses from its module and other modules of perfkit.
    Part of the cache's stamp, as numba itself invalidates only by the text of the function's own module."""
    names = function.__code__.co_names
    used = [function.__globals__[name] for name in names if name in function.__globals__]
    modules = [vars(value) for value in used if isinstance(value, ModuleType) and value.__name__.startswith(_OWN)]
    parts: list[Any] = []
    for value in used + [module[name] for module in modules for name in names if name in module]:
        if isinstance(value, int | float | bytes | str | tuple | np.generic):
            parts.append(value)
        else:
            file = _cache_file(value._compiled if isinstance(value, _Function) else value)
            parts.append(file and file._source_stamp)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


class _Function:
    def __init__(self, function: Any, steps: int) -> None:
        functools.update_wrapper(self, function)
        self._function, self._steps = function, steps

    def __call__(self, *arguments: Any) -> Any:
        if Interpreted.cells < ENOUGH_CELLS:
            more = self._steps * sum(array.size for array in arguments if isinstance(array, np.ndarray))
            Interpreted.cells = max(Interpreted.cells + more, Interpreted.cells)  # another thread may have loaded numba
            if Interpreted.cells < ENOUGH_CELLS:
                with np.errstate(over="ignore"):
                    return self._interpreted(*arguments)
        return self._compiled(*arguments)

    @functools.cached_property
    def _interpreted(self) -> Any:
        """The function in Python. It calls the interpreted forms of other compiled functions, which do not count
        cells."""
        code, names = self._function.__code__, self._function.__globals__
        called = {name: names[name] for name in code.co_names if isinstance(names.get(name), _Function)}
        own = names | {name: function._interpreted for name, function in called.items()}
        return FunctionType(code, own, argdefs=self._function.__defaults__)

    @functools.cached_property
    def _compiled(self) -> Any:
        return compiled_at_once(self._function)

    def __reduce__(self) -> str:
        return str(self._function.__qualname__)

    @property
    def _numba_type_(self) -> Any:
        return self._compiled._numba_type_
