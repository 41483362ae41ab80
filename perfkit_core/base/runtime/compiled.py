"""Functions that run as machine code, which is built when perfkit is installed (docs/decisions/0019).

The decorator :func:`compiled` marks a function. ``base/runtime/build.py`` compiles the marked functions of a module
with numba, and writes them to a library. A call loads this library, and runs the function without Python's lock. numba
is not needed to run perfkit. With the environment variable ``PERFKIT_COMPILED=python``, the functions run in Python."""

from __future__ import annotations

import ctypes
import functools
import operator
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from perfkit_core.base.runtime import library
from perfkit_core.base.runtime.signature import KINDS, Array, Out, Record, Signature, Strided, signature

P = ParamSpec("P")
R = TypeVar("R")
INLINED: Final = "inlined"
__all__ = ["CompiledFunction", "Mode", "Out", "Primitive", "Strided", "compiled", "in_python", "inlined"]


class Mode:
    """How compiled functions run. If set, ``instead`` takes a compiled function and returns what to run in its place.
    Functions that take numpy records always run as machine code."""

    instead: ClassVar[Callable[[CompiledFunction[..., Any]], Callable[..., Any]] | None] = None


def compiled(function: Callable[P, R]) -> CompiledFunction[P, R]:
    """Decorate a function at module level that is to run as machine code.

    It may call other such functions, and numpy functions that numba knows. It must not allocate memory or raise errors:
    if it could, the build fails. Integers wrap around. Array indices are not checked.

    If all its parameters are annotated, Python code can call it, with positional arguments
    (``base/runtime/signature.py``). The result is None, a number, or a tuple of numbers."""
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
        self.traits = INLINED if inline else "compiled"
        self._entries: dict[str, Callable[..., Any]] = {}

    @functools.cached_property
    def signature(self) -> Signature | None:
        return signature(self.python)

    def __call__(self, *arguments: P.args, **names: P.kwargs) -> R:
        types = self.signature
        if Mode.instead is not None and (types is None or not any(isinstance(t, Record) for t in types.parameters)):
            return Mode.instead(self)(*arguments)  # type: ignore[no-any-return]
        if types is None or names or len(arguments) != len(types.parameters):
            raise TypeError(f"{self.__name__} takes positional arguments, as many as it has annotated parameters")
        numbers: list[int] = []
        kinds, arrays = "", []  # the arrays keep copies alive until the function has returned
        for type_, argument in zip(types.parameters, arguments, strict=True):
            if isinstance(type_, Array):
                array = self._checked(type_, argument)
                arrays.append(array)
                kinds += f"_{KINDS[array.dtype]}"
                numbers += (array.ctypes.data, *array.shape, *(array.strides if type_.strided else ()))
            elif isinstance(type_, Record):
                if not isinstance(argument, np.void) or argument.dtype != type_.dtype:
                    raise TypeError(f"{self.__name__} takes a record of another type than {argument!r:.80}")
                numbers.append(np.asarray(argument).ctypes.data)  # shares the memory of the record
            else:
                numbers.append(operator.index(argument))  # type: ignore[arg-type]
        entry = self._entries.get(kinds) or self._entry(kinds, types)
        if not types.several:
            result = entry(*numbers)
            return types.results[0](result) if types.results else result  # type: ignore[no-any-return]
        cells = (ctypes.c_int64 * len(types.results))()
        entry(*numbers, ctypes.addressof(cells))
        return tuple(make(cell) for make, cell in zip(types.results, cells, strict=True))  # type: ignore[return-value]

    def __reduce__(self) -> str:
        return self.__name__

    def _checked(self, type_: Array, argument: Any) -> npt.NDArray[Any]:
        if not isinstance(argument, np.ndarray):
            raise TypeError(f"{self.__module__}.{self.__name__} does not take {type(argument)} as an array")
        if argument.ndim != type_.dimensions or argument.dtype not in type_.dtypes:
            what = f"{argument.ndim} dimensions of {argument.dtype}"
            raise TypeError(f"{self.__module__}.{self.__name__} does not take an array with {what}")
        contiguous = type_.strided or argument.flags.c_contiguous
        if type_.changed and not (contiguous and argument.flags.writeable):
            raise ValueError(f"{self.__name__} changes an array that is read only or not contiguous")
        return argument if contiguous else np.ascontiguousarray(argument)

    def _entry(self, kinds: str, types: Signature) -> Callable[..., Any]:
        entry = library.load(self.__module__)[self.__name__ + kinds]
        count = sum(type_.numbers if isinstance(type_, Array) else 1 for type_ in types.parameters)
        entry.argtypes = [ctypes.c_int64] * (count + types.several)
        unsigned = types.results == (np.uint64,)
        entry.restype = None if types.several or not types.results else ctypes.c_uint64 if unsigned else ctypes.c_int64
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
    ``instruction`` and ``kind`` tell ``base/runtime/build.py`` which instruction it is, and the type of its value."""

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
