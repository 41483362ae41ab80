"""Results that are cached with the object that they describe, such as a trace.

If memory is limited and becomes scarce, large results are dropped, and computed or read again when they are needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar, cast
from weakref import WeakValueDictionary

import numpy as np
import pandas as pd
import pyarrow as pa

from perfkit_core.base.system import machine

CELL_BYTES: Final = 8
"""Bytes of a cell in most arrays, which have one cell for each event."""
_ABSENT: Final = object()


class Cache:
    """Results by key. Several threads may use the same object."""

    __slots__ = ("__weakref__", "_dropped", "_results")

    def __init__(self, results: Mapping[Any, Any] | None = None) -> None:
        self._results = dict(results or {})
        # Dropped results that are still in use. They are not made again, because both copies would take memory.
        self._dropped: WeakValueDictionary[Any, Any] = WeakValueDictionary()
        machine.caches[id(self)] = self

    def __reduce__(self) -> tuple[type[Cache], tuple[()]]:
        """Send no results to other processes, which can make them again."""
        return Cache, ()

    def get(self, key: Any) -> Any:
        """Return a result, or None if it is not cached."""
        return self._results.get(key)

    def result(self, key: Any, make: Callable[[], Any], size: int, purpose: str) -> Any:
        """Return the result of ``make``, which is called the first time. ``size`` is the memory that it needs in bytes,
        and ``purpose`` its name in the error. Raises UsageError if it exceeds the limit of memory."""
        result = self._results.get(key, _ABSENT)
        if result is _ABSENT:
            result = self._dropped.get(key, _ABSENT)
            if result is _ABSENT:
                machine.require(size, purpose)
                result = make()
            self._results[key] = result
        return result

    def update(self, results: Mapping[Any, Any]) -> None:
        self._results.update(results)

    def of_columns(
        self, words: Collection[str], without: Collection[str], change: Callable[[Any], Any] = lambda value: value
    ) -> Cache:
        """Return a cache of the results whose key is a tuple (one of ``words``, a name that is not in ``without``, …),
        as ``change`` returns them. It shares their memory."""
        results = {
            key: change(value)
            for key, value in list(self._results.items())  # a copy, as another thread may add a key
            if isinstance(key, tuple) and key[0] in words and key[1] not in without
        }
        return Cache(results)

    def droppable(self) -> Iterator[tuple[int, Callable[[], None]]]:
        """Yield the size in bytes of each result, and a function that drops the result."""
        for key, value in list(self._results.items()):
            yield _size(value), lambda key=key: self._drop(key)  # type: ignore[misc]

    def _drop(self, key: Any) -> None:
        value = self._results.pop(key, None)
        with suppress(TypeError):  # there are no weak references to some objects, such as tuples
            self._dropped[key] = value


def _size(value: Any) -> int:
    """Return the bytes of the arrays and tables in a result."""
    if isinstance(value, (np.ndarray, pa.Table)):
        return int(value.nbytes)
    if isinstance(value, pd.DataFrame):
        return int(value.memory_usage().sum())
    return sum(map(_size, _parts(value)))


def _parts(value: Any) -> Sequence[Any]:
    if is_dataclass(value):
        return [getattr(value, field.name) for field in fields(value)]
    return value if isinstance(value, tuple) else ()


class Caching(Protocol):
    """An object that caches results about it, such as a trace."""

    @property
    def _cache(self) -> Cache: ...


C = TypeVar("C", bound=Caching)
P = ParamSpec("P")
R = TypeVar("R")


def once(make: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[C, P], R]:
    """Decorate a function so that its results are cached with its first argument, such as a trace. Other arguments must
    be hashable. Arrays in the result become read-only, because several callers share them."""
    name = f"{make.__module__}.{make.__qualname__}"

    @wraps(make)
    def cached(subject: C, *args: P.args, **kwargs: P.kwargs) -> R:
        def result() -> R:
            value = make(subject, *args, **kwargs)
            for part in _parts(value) or (value,):
                if isinstance(part, np.ndarray):
                    part.setflags(write=False)
            return value

        size = CELL_BYTES * len(subject) if isinstance(subject, Sized) else 0
        answer = subject._cache.result((name, args, tuple(kwargs.items())), result, size, "a result of the views")
        return cast(R, answer)

    return cast(Callable[Concatenate[C, P], R], cached)
