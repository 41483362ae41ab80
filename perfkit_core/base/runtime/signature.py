"""The types of the parameters and results of compiled functions, which their annotations give.

- ``int``, ``bool`` and ``np.uint64`` are numbers. An address is an ``int``.
- An array has one dimension and one of the types in KINDS. A union allows several types. ``Annotated[…, 2]`` has two
  dimensions. ``Out[…]`` is an array that the function changes. ``Strided[…]`` is passed with its stride, for example
  an array that repeats a value. Without this mark, an array that is not contiguous is copied.
- ``Annotated[Any, dtype]`` is a numpy record."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, TypeVar

import numpy as np

T = TypeVar("T")

Out = Annotated[T, "out"]
Strided = Annotated[T, "strided"]
KINDS: Final = {np.dtype(kind): kind for kind in ("i1", "i4", "i8", "u1", "f8", "b1")}
"""The types of arrays, and the suffix that each adds to a function's name in the library."""
NUMBERS: Final = {int: "int64", bool: "int64", np.uint64: "uint64"}
"""The types of numbers, and how they are passed."""


@dataclass(frozen=True, slots=True)
class Array:
    """An array parameter. It has one of the ``dtypes``."""

    dtypes: tuple[np.dtype[Any], ...]
    dimensions: int = 1
    changed: bool = False
    strided: bool = False

    @property
    def numbers(self) -> int:
        """How many numbers describe the array: its address, the lengths of its dimensions, and the stride."""
        return 1 + self.dimensions + self.strided


@dataclass(frozen=True, slots=True)
class Record:
    """A parameter that is a numpy record."""

    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Signature:
    """``results`` are the types of the results. It is empty if the function returns None. ``several`` says whether the
    function returns a tuple."""

    parameters: tuple[Array | Record | str, ...]
    results: tuple[Any, ...]
    several: bool


def signature(function: Callable[..., Any]) -> Signature | None:
    """Return the types of a function. None if it has no annotations: only compiled functions can call it. Raises
    TypeError if an annotation is of no type that compiled functions take or return."""
    if "return" not in function.__annotations__:
        return None
    hints = typing.get_type_hints(function, include_extras=True)
    result = hints.pop("return")
    if hints.keys() != inspect.signature(function).parameters.keys():
        raise TypeError(f"{function.__qualname__}: a parameter has no annotation")
    several = typing.get_origin(result) is tuple
    results = typing.get_args(result) if several else () if result is type(None) else (result,)
    if not set(results) <= NUMBERS.keys():
        raise TypeError(f"{function.__qualname__} returns {result}, which is no number")
    return Signature(tuple(map(_parameter, hints.values())), results, several)


def _parameter(hint: Any) -> Array | Record | str:
    if hint in NUMBERS:
        return NUMBERS[hint]
    if isinstance(hint, types.UnionType):
        arrays = [_parameter(member) for member in typing.get_args(hint)]
        return Array(tuple(dtype for array in arrays if isinstance(array, Array) for dtype in array.dtypes))
    if typing.get_origin(hint) is Annotated:
        inner, *notes = typing.get_args(hint)
        if inner is Any and isinstance(notes[0], np.dtype):
            return Record(notes[0])
        array = _parameter(inner)
        if isinstance(array, Array):
            dimensions = 2 if 2 in notes else 1
            return replace(array, dimensions=dimensions, changed="out" in notes, strided="strided" in notes)
    if typing.get_origin(hint) is np.ndarray:
        (scalar,) = typing.get_args(typing.get_args(hint)[1])
        return Array((np.dtype(scalar),))
    raise TypeError(f"{hint} is no type that compiled functions take")
