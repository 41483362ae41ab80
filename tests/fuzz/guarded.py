"""Memory that ends with a page that nobody may touch: reading one byte too many ends the process."""

from __future__ import annotations

import ctypes
import mmap
from typing import Final

import numpy as np
import numpy.typing as npt

from perfkit_core.readers.scanner.tokens import PAD

_PAGES: Final = 16


class Guarded:
    def __init__(self, pages: int = _PAGES) -> None:
        self.size = pages * mmap.PAGESIZE
        self._held = mmap.mmap(-1, self.size + mmap.PAGESIZE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._held))
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(address + self.size), ctypes.c_size_t(mmap.PAGESIZE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
        self._whole = np.frombuffer(self._held, np.uint8)

    def put(self, data: bytes) -> npt.NDArray[np.uint8]:
        """Return a buffer that holds ``data`` and PAD zero bytes, directly before the guarded page."""
        start = self.size - PAD - len(data)
        if start < 0:
            raise ValueError(f"{len(data)} bytes do not fit")
        self._whole[start : self.size - PAD] = np.frombuffer(data, np.uint8)
        self._whole[self.size - PAD : self.size] = 0
        return self._whole[start : self.size]

    def touch_guard(self) -> int:
        return int(self._whole[self.size])
