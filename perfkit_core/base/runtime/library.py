"""The libraries of compiled functions: one for each module, in the folder ``_compiled`` of its package."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from pathlib import Path
from typing import Final

from perfkit_core.errors import UsageError

BUILT: Final = "built"
"""Value of the environment variable ``PERFKIT_COMPILED`` if all libraries are known to be fresh. Tests set it, because
functions that tests replace would look edited."""


def library_path(module: str) -> Path:
    """Return the path of the library with the functions of an imported module."""
    package = sys.modules[module.partition(".")[0]]
    return Path(package.__path__[0]) / "_compiled" / f"{module}.so"


@functools.cache
def load(module: str) -> ctypes.CDLL:
    """Return the library of an imported module. Raises UsageError if it is missing or damaged, or cannot be built."""
    path = library_path(module)
    if os.environ.get("PERFKIT_COMPILED") != BUILT and (path.parents[2] / "hatch_build.py").exists():
        from perfkit_core.base.runtime import freshness  # in a checkout, functions may have been edited

        freshness.ensure_fresh(module, path)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise UsageError(f"compiled code of perfkit is missing or damaged ({error})", "reinstall perfkit") from None
