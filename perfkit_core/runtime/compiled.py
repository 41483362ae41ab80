"""Functions that run as machine code, which is built when perfkit is installed (docs/decisions/0019).

The decorator :func:`compiled` marks a function. ``runtime/build.py`` compiles the marked functions of a module with
numba, and writes them to a library. A call loads this library, and runs the function without Python's lock. numba is
not needed to run perfkit. With the environment variable ``PERFKIT_COMPILED=python``, the functions run in Python.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Generic, ParamSpec, TypeVar

import numpy as np

from perfkit_core.runtime import library

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

Out = Annotated[T, "out"]
"""The annotation of an array that a compiled function changes. It cannot change other arrays."""
Strided = Annotated[T, "strided"]
"""The annotation of an array whose items need not be adjacent, such as one that repeats a value. Others are copied."""
KINDS: Final = {np.dtype(kind): kind for kind in ("i1", "i4", "i8", "u1", "f8", "b1")}
"""The types of the arrays that compiled functions take, with their names in the names of a library's functions."""
_RESULTS: Final[dict[str, tuple[Any, Callable[[Any], Any]]]] = {
    "None": (None, lambda nothing: nothing),
    "int": (ctypes.c_int64, int),
    "bool": (ctypes.c_int64, bool),
    "np.uint64": (ctypes.c_uint64, np.uint64),
}
"""For each type of result: the type in the library, and how to make a Python value of it."""


class Mode:
    """How compiled functions run. ``instead`` returns what runs in place of a function's machine code, if it is set.
    Functions that take numpy records always run as machine code."""

    instead: ClassVar[Callable[[CompiledFunction[..., Any]], Callable[..., Any]] | None] = None


def compiled(function: Callable[P, R]) -> CompiledFunction[P, R]:
    """Decorate a function at module level that is to run as machine code.

    It may call other such functions, and numpy functions that numba knows. It must not allocate memory or raise errors:
    if it could, the build fails. Integers wrap around. Array indices are not checked.

    If its parameters are annotated, Python code can call it, with positional arguments. They are numbers, addresses,
    numpy records (``Annotated[Any, dtype]``) or arrays of the types in KINDS. A union of types allows each of them.
    ``Out[…]`` marks an array that the function changes, ``Strided[…]`` one that is not copied if its items are not
    adjacent, and ``Annotated[…, 2]`` one with two dimensions. The result is None, a number, or a tuple of numbers.
    """
    return CompiledFunction(function)


def inlined(function: Callable[P, R]) -> CompiledFunction[P, R]:
    """Decorate a function that is copied into each compiled function that calls it. Used for small functions, and for
    functions with a single caller. Without this, numba returns tuples through memory."""
    return CompiledFunction(function, inline=True)


class CompiledFunction(Generic[P, R]):
    """A function with the decorator :func:`compiled`. ``python`` is the undecorated function."""

    __name__: str

    def __init__(self, function: Callable[P, R], inline: bool = False) -> None:
        functools.update_wrapper(self, function)
        self.python: Any = function
        self.inline = inline
        self._entries: dict[str, Callable[..., Any]] = {}
        types = dict(function.__annotations__)
        result = types.pop("return", "None").removeprefix("tuple[").removesuffix("]")
        self._results = [_RESULTS[name] for name in result.split(", ")] if types else []
        self._changed = [name.startswith("Out[") for name in types.values()]
        self._strided = [name.startswith("Strided[") for name in types.values()]

    def __call__(self, *arguments: P.args, **_: P.kwargs) -> R:
        if Mode.instead is not None and not any(isinstance(argument, np.void) for argument in arguments):
            return Mode.instead(self)(*arguments)  # type: ignore[no-any-return]
        numbers: list[int] = []
        kinds, arrays = "", []  # the arrays keep copies alive until the function has returned
        for argument, changed, strided in zip(arguments, self._changed, self._strided, strict=True):
            if isinstance(argument, np.ndarray):
                array = argument if strided else np.ascontiguousarray(argument)
                if changed and (array is not argument or not array.flags.writeable):
                    raise ValueError(f"{self.__name__} changes an array that is read only or not contiguous")
                arrays.append(array)
                kinds += f"_{KINDS[array.dtype]}"
                numbers += (array.ctypes.data, *array.shape, *(array.strides if strided else ()))
            elif isinstance(argument, np.void):
                numbers.append(np.asarray(argument).ctypes.data)  # shares the memory of the record
            else:
                numbers.append(int(argument))  # type: ignore[call-overload]
        entry = self._entries.get(kinds) or self._entry(kinds, numbers)
        if len(self._results) == 1:
            return self._results[0][1](entry(*numbers))  # type: ignore[no-any-return]
        cells = (ctypes.c_int64 * len(self._results))()
        entry(*numbers, ctypes.addressof(cells))
        return tuple(make(cell) for (_, make), cell in zip(self._results, cells, strict=True))  # type: ignore[return-value]

    def __reduce__(self) -> str:
        return self.__name__

    @property
    def traits(self) -> str:
        return "inlined" if self.inline else "compiled"

    def _entry(self, kinds: str, numbers: Sequence[int]) -> Callable[..., Any]:
        functions = library.load(self.__module__)
        try:
            entry = functions[self.__name__ + kinds]
        except AttributeError:
            raise TypeError(f"{self.__module__}.{self.__name__} takes no arrays of the types {kinds}") from None
        single = len(self._results) == 1
        entry.argtypes = [ctypes.c_int64] * (len(numbers) + (not single))
        entry.restype = self._results[0][0] if single else None
        self._entries[kinds] = entry
        return entry


def in_python(function: CompiledFunction[..., Any]) -> Callable[..., Any]:
    """Return a function that runs a compiled function in Python, to debug it, or to compare the results."""

    def run(*arguments: Any) -> Any:
        with np.errstate(over="ignore"):
            return function.python(*arguments)

    return run


@dataclass(frozen=True)
class Primitive:
    """A function that is one instruction of the processor in compiled functions. ``python`` does the same.
    ``instruction`` and ``kind`` tell ``runtime/build.py`` which instruction it is, and of which type its value."""

    python: Callable[..., Any]
    instruction: str
    kind: str

    def __call__(self, *arguments: Any) -> Any:
        return self.python(*arguments)

    @property
    def traits(self) -> str:
        return f"{self.instruction} {self.kind}"


if os.environ.get("PERFKIT_COMPILED") == "python":
    Mode.instead = in_python
