"""Functions that are imported when they are first called, so that what registers them is quick to import."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def later(module: str, name: str) -> Callable[..., Any]:
    """The function ``name`` of ``module``, not yet imported. Calls raise what the import and the function raise."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    return call
