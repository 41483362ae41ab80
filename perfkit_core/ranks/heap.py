"""How much free memory does a worker keep while it reduces ranks? Enough to use it again for the next array.

Dask starts its workers with ``MALLOC_TRIM_THRESHOLD_``: whatever is free goes back to the system at once, and each
array of more than 128 KB is asked for anew, page by page. That makes reducing a rank a fifth dearer.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from typing import Any, Final

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's ``mallopt`` (malloc.h)."""
_KEPT_BYTES: Final = 128 << 20
_LARGEST_BYTES: Final = 32 << 20
"""glibc takes no more for the second: larger pieces are the system's again as soon as they are free."""
_USUAL_LARGEST: Final = 128 << 10


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """While the block runs malloc keeps what is free; behind it the settings of the process hold again. Does nothing
    where no such setting was made, or another malloc than glibc's is at work."""
    told = os.environ.get("MALLOC_TRIM_THRESHOLD_", "")
    malloc = _glibc() if told.isdigit() else None
    if malloc is None:
        yield
        return
    malloc.mallopt(_MMAP_THRESHOLD, _LARGEST_BYTES)
    malloc.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
    try:
        yield
    finally:
        largest = os.environ.get("MALLOC_MMAP_THRESHOLD_", "")
        malloc.mallopt(_MMAP_THRESHOLD, int(largest) if largest.isdigit() else _USUAL_LARGEST)
        malloc.mallopt(_TRIM_THRESHOLD, int(told))
        malloc.malloc_trim(0)


def _glibc() -> Any:
    """The C library of this process, None where it is another one."""
    try:
        library = ctypes.CDLL(None)
        return library if library.mallopt and library.malloc_trim else None
    except (AttributeError, OSError, TypeError):
        return None
