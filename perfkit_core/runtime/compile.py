"""Functions that numba compiles once a process has enough work for them (docs/decisions/0011).

Loading numba takes a third of a second. Therefore each process first runs these functions in Python. After ENOUGH_CELLS
array cells, the process loads numba and runs the compiled functions. The results are the same either way."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

import numpy as np

ENOUGH_CELLS: Final = 2_000_000
"""Number of array cells after which numba is loaded. In Python, that many take about as long as loading numba."""

_PACKAGE_PREFIX: Final = __name__.partition(".")[0] + "."
_listeners: list[Callable[[bool], None]] = []


class Interpreted:
    """``cells`` is the number of array cells handled in Python. Loading numba sets it to ENOUGH_CELLS."""

    cells = 0


@contextmanager
def watched(listener: Callable[[bool], None]) -> Iterator[None]:
    """Report compilations within the block, for a progress display. ``listener(True)`` is called when a compilation
    begins, ``listener(False)`` when it ends. Simultaneous compilations count as one. The calls come from any thread."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@functools.cache
def listen() -> None:
    """Start reporting numba compilations (imports numba)."""
    from numba.core import event

    class Compiling(event.Listener):  # type: ignore[misc]
        depth = 0

        def on_start(self, _: event.Event) -> None:
            self.depth += 1
            if self.depth == 1:
                self.report(True)

        def on_end(self, _: event.Event) -> None:
            self.depth -= 1
            if self.depth == 0:
                self.report(False)

        def report(self, begun: bool) -> None:
            for listener in list(_listeners):
                listener(begun)

    event.register("numba:compile", Compiling())


def compiled(function: Any = None, *, steps: int = 1) -> Any:
    """Decorate a function that numba compiles as soon as loading numba pays off.

    The function must be defined at module level and take positional arguments. Its run time must be proportional to the
    number of cells of its arrays. It may call other ``compiled`` functions, but not itself. Integers wrap around in
    Python as in compiled code. ``steps`` is the work per cell: above 1 for functions that search or hash.
    """
    return functools.partial(_Function, steps=steps) if function is None else _Function(function, steps)


def compiled_at_once(function: Any, **options: Any) -> Any:
    """Load numba, and let it compile a function at its first call. The compiled code runs without Python's lock.
    ``options`` are those of ``numba.njit``. numba caches the code next to the module, in the user's cache folder, or in
    ``NUMBA_CACHE_DIR``. If none of these is writable, every process compiles the function again."""
    from numba import njit

    Interpreted.cells = ENOUGH_CELLS
    listen()
    _avoid_zlib()
    try:
        dispatcher = njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:  # numba raises this if no cache folder is writable
        return njit(nogil=True, **options)(function)
    file = _cache_file(dispatcher)
    if file is not None:
        file._source_stamp = (file._source_stamp, _digest(function))
    return dispatcher


@functools.cache
def _avoid_zlib() -> None:
    """Let numba use isal in place of zlib, for the compressed options in the names of its functions.

    In a process that loaded Paddle 2.6 before Python's ``zlib``, zlib crashes: Paddle has its own copy of zlib, whose
    functions take the place of some of the system's. isal has no such functions."""
    from isal import isal_zlib
    from numba.core import targetconfig

    targetconfig.zlib = isal_zlib


def cache_folder(function: Any) -> Path | None:
    """Return the folder in which numba caches the compiled code of a function, None if no cache folder is writable."""
    place = compiled_at_once(function).stats.cache_path
    return None if place is None else Path(place)


def _cache_file(dispatcher: Any) -> Any:
    file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    return file if hasattr(file, "_source_stamp") else None


def _digest(function: Any) -> str:
    """Return a digest of the constants and compiled functions of perfkit that a function uses. The stamp of numba's
    cache covers only the function's own file, so the digest is added to this stamp."""
    names = function.__code__.co_names
    used = [function.__globals__[name] for name in names if name in function.__globals__]
    modules = [
        vars(value) for value in used if isinstance(value, ModuleType) and value.__name__.startswith(_PACKAGE_PREFIX)
    ]
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
        """Return an uncompiled copy of the function. The copy calls uncompiled copies of other ``compiled`` functions.
        Such inner calls do not add to ``Interpreted.cells``."""
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
