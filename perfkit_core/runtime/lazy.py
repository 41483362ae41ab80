"""Functions that are imported when they are first called, so that what registers them is quick to import.

Names of an adapter that need its framework: imported on first use, with one clear line where it is missing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def later(module: str, name: str) -> Callable[..., Any]:
    """The function ``name`` of ``module``, not yet imported. Calls raise what the import and the function raise."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    return call


def exported(package: str, name: str, homes: Mapping[str, str], extra: str) -> Any:
    """The object ``name`` from the module ``homes[name]`` of ``package``, for its ``__getattr__``.

    Raises AttributeError for another name, ImportError with what to install (the ``extra`` of perfkit) where the
    framework is missing.
    """
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
    except ModuleNotFoundError as error:
        raise ImportError(f"{package}.{name}: {error}; install it with: pip install 'perfkit[{extra}]'") from None
