"""Memory for large columns, apart from malloc's: it is the system's again with the last array that uses it.

What a large recording pays most for is to touch memory for the first time. numpy asks for large pages where an array
has four megabytes: on virtual machines that give free memory back to their host these are what was given back, and take
up to five times as long (docs/decisions/0010). Memory from here comes in pages of the usual size, unless the system
gives large ones to everybody.
"""

from __future__ import annotations

import mmap
from typing import Any, Final

import numpy as np
import numpy.typing as npt

SMALL_BYTES: Final = 1 << 20
"""Up to here malloc is as good."""


def column(count: int, kind: Any) -> npt.NDArray[Any]:
    """An array of shape (count,), of whatever was there. Cells that nobody touches take no memory.

    Raises MemoryError where the system has none.
    """
    size = count * np.dtype(kind).itemsize
    if size <= SMALL_BYTES:
        return np.empty(count, kind)
    try:
        return np.frombuffer(mmap.mmap(-1, size, **_private()), kind, count)
    except OSError as error:
        raise MemoryError(f"no memory for {size} bytes ({error})") from None


def filled(count: int, value: int, kind: Any = np.int64) -> npt.NDArray[Any]:
    """An array of shape (count,) of one value."""
    cells = column(count, kind)
    cells.fill(value)
    return cells


def _private() -> dict[str, int]:
    """Other processes do not see it: what Python asks for otherwise lies in a file system of the kernel."""
    return {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
