"""Instructions for compiled functions: access to memory by its address, and bits of numbers.

No access is checked: the caller must keep the memory alive and pass valid addresses, which need not be aligned."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from perfkit_core.base.runtime.compiled import Primitive


def _load(kind: type[np.generic], stored: Any) -> Primitive:
    size = ctypes.sizeof(stored)

    def load(address: int, index: int) -> Any:
        return kind(stored.from_address(int(address) + size * int(index)).value)

    return Primitive(load, "load", kind.__name__)


def _store(kind: type[np.generic], stored: Any) -> Primitive:
    size = ctypes.sizeof(stored)

    def store(address: int, index: int, value: Any) -> None:
        stored.from_address(int(address) + size * int(index)).value = int(value)

    return Primitive(store, "store", kind.__name__)


byte, put_byte = _load(np.uint8, ctypes.c_uint8), _store(np.uint8, ctypes.c_uint8)
"""``byte(address, index)`` returns one item of the array of bytes at ``address``. ``put_byte(address, index, value)``
sets an item. The functions below do the same for arrays of larger items."""
int32, put_int32 = _load(np.int32, ctypes.c_int32), _store(np.int32, ctypes.c_int32)
int64, put_int64 = _load(np.int64, ctypes.c_int64), _store(np.int64, ctypes.c_int64)
uint64, put_uint64 = _load(np.uint64, ctypes.c_uint64), _store(np.uint64, ctypes.c_uint64)


def _trailing_zeros(word: np.uint64) -> int:
    return (int(word) & -int(word)).bit_length() - 1


trailing_zeros = Primitive(_trailing_zeros, "trailing zeros", "uint64")
"""``trailing_zeros(word)`` returns how many bits below the lowest set bit of ``word`` are 0. ``word`` must not be 0."""
