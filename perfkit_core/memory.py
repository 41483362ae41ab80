"""Memory for large columns, apart from malloc's: it is the system's again with the last array that uses it.

What a large recording pays most for is to touch memory for the first time. Large pages make that five times faster
where the system has them at hand, and five times slower where it has to find or ask for them (a virtual machine that
gives free memory back to its host); the first page tells which.
"""

from __future__ import annotations

import mmap
import time
from typing import Any, Final

import numpy as np
import numpy.typing as npt

SMALL_BYTES: Final = 1 << 20
"""Up to here malloc is as good."""
_LARGE_PAGE: Final = 1 << 21
_AT_HAND_S: Final = 0.001
"""A large page of zeros takes 0.2 ms, as many small ones 1.2 ms."""


def column(count: int, kind: Any) -> npt.NDArray[Any]:
    """An array of shape (count,), of whatever was there. Cells that nobody touches take no memory."""
    size = count * np.dtype(kind).itemsize
    if size <= SMALL_BYTES:
        return np.empty(count, kind)
    room = mmap.mmap(-1, size, **_private())
    cells = np.frombuffer(room, kind, count)
    if size > 2 * _LARGE_PAGE and _LargePages.at_hand:
        _LargePages.ask(room, -cells.ctypes.data % _LARGE_PAGE)
    return cells


class _LargePages:
    """What this process has seen of them; once they were slow, no more are asked for."""

    at_hand = hasattr(mmap, "MADV_HUGEPAGE")

    @classmethod
    def ask(cls, room: mmap.mmap, first: int) -> None:
        """``first``: where the first whole large page begins."""
        try:
            room.madvise(mmap.MADV_HUGEPAGE)
            begin = time.perf_counter()
            room[first] = 0
            if time.perf_counter() - begin >= _AT_HAND_S:
                cls.at_hand = False
                room.madvise(mmap.MADV_NOHUGEPAGE)
        except OSError:  # Python knows the request, the kernel does not
            cls.at_hand = False


def _private() -> dict[str, int]:
    """Memory that is shared with other processes, as Python asks for otherwise, comes in small pages only."""
    return {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
