"""Python's garbage collector, kept out of the way of what makes millions of objects."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def without_gc(action: Callable[[], Result]) -> Result:
    """Run with the garbage collector off: it would scan the millions of objects that an extraction makes."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        return action()
    finally:
        if was_on:
            gc.enable()
