"""What several views need of a trace is computed once, by the first that asks, and shared read only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import numpy as np

from perfkit_core.trace import Trace

P = ParamSpec("P")
R = TypeVar("R")


def once(make: Callable[Concatenate[Trace, P], R]) -> Callable[Concatenate[Trace, P], R]:
    """A function of a trace (and of arguments that can be hashed) whose result is kept with the trace.

    Arrays in the result cannot be written to: a view that changed them would change what others see.
    """
    name = f"{make.__module__}.{make.__qualname__}"

    @wraps(make)
    def kept(trace: Trace, *args: P.args, **kwargs: P.kwargs) -> R:
        key = (name, args, tuple(kwargs.items()))
        found: R = trace._cached(key, lambda: _read_only(make(trace, *args, **kwargs)))
        return found

    return cast(Callable[Concatenate[Trace, P], R], kept)


def _read_only(found: R) -> R:
    for part in _parts(found):
        if isinstance(part, np.ndarray):
            part.setflags(write=False)
    return found


def _parts(found: Any) -> list[Any]:
    if is_dataclass(found) and not isinstance(found, type):
        return [getattr(found, field.name) for field in fields(found)]
    return list(found) if isinstance(found, tuple) else [found]
