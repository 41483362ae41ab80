"""Functions that numba compiles: kept on disk, so that one process compiles for all, and run without Python's lock."""

from __future__ import annotations

from typing import Any

from numba import njit


def compiled(function: Any, **options: Any) -> Any:
    """The function, compiled when it is first called. ``options`` are those of ``numba.njit``.

    numba keeps what it compiled beside the module, else in the user's cache, or in ``NUMBA_CACHE_DIR``. Where none can
    be written (a system's Python, a container without a home) every process compiles again.
    """
    try:
        return njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:  # numba has no error of its own for "no locator available"
        return njit(nogil=True, **options)(function)
