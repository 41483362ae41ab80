"""Memory by its address, eight bytes at a time: loads, the first special byte of a word, hashes and comparisons.

Compiled code of the scanner takes addresses and records instead of arrays: an array is handed on by value, with its
shape and strides, and 40 of them cost more than the scan. Every buffer that is scanned ends with :data:`PAD` zero
bytes. A zero byte ends every token, so no loop needs a bound, and a load that begins inside the buffer ends inside the
pad.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from perfkit_core import compiling

compiled = functools.partial(compiling.compiled_at_once, error_model="numpy", _nrt=False)
"""Compiled without reference counting: nothing is allocated, and the caller keeps alive what addresses point to."""
inlined = functools.partial(compiled, forceinline=True)
"""The same, for what is small or called from one place only: numba hands results of several values over in memory."""

PAD: Final = 16

_ZEROS: Final = np.uint64(0x3030303030303030)
_ABOVE_NINE: Final = np.uint64(0x7676767676767676)
_ONES: Final = np.uint64(0x0101010101010101)
_HIGHS: Final = np.uint64(0x8080808080808080)
SPACES: Final = np.uint64(0x2020202020202020)
_QUOTES: Final = np.uint64(0x2222222222222222)
_BACKSLASHES: Final = np.uint64(0x5C5C5C5C5C5C5C5C)
SEED: Final = np.uint64(0x9E3779B97F4A7C15)
_FACTOR: Final = np.uint64(0xFF51AFD7ED558CCD)
_SHIFT: Final = np.uint64(32)
_BYTE_PAIRS: Final = np.uint64(0x000000FF000000FF)
_EIGHT: Final = np.uint64(8)
_ONE: Final = np.uint64(1)


def _loader(bits: int, result: Any) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def load(typing: Any, address: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            loaded = builder.load(_pointer(builder, args, bits))
            loaded.align = 1
            return loaded

        return result(types.int64, types.int64), generate

    return load


def _storer(bits: int, kind: Any) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def store(typing: Any, address: Any, index: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            stored = builder.store(args[2], _pointer(builder, args, bits))
            stored.align = 1
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, kind), generate

    return store


def _pointer(builder: Any, args: Any, bits: int) -> Any:
    base = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
    return builder.gep(base, [args[1]])


byte, put_byte = _loader(8, types.uint8), _storer(8, types.uint8)
"""``byte(address, index)`` and ``put_byte(address, index, value)``; so are the others, the index counts items."""
int32, put_int32 = _loader(32, types.int32), _storer(32, types.int32)
int64, put_int64 = _loader(64, types.int64), _storer(64, types.int64)
uint64, put_uint64 = _loader(64, types.uint64), _storer(64, types.uint64)


@inlined
def load8(address, index):  # type: ignore[no-untyped-def]
    """The word that begins at byte ``index``, little endian, whatever the alignment."""
    return uint64(address + index, 0)


@intrinsic  # type: ignore[untyped-decorator]
def trailing_zeros(typing: Any, word: Any) -> Any:
    """Number of zero bits below the lowest set bit of a word that is not 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], cgutils.true_bit)

    return types.int64(types.uint64), generate


@inlined
def special(word):  # type: ignore[no-untyped-def]
    """Marks bytes that are no plain text: quote, backslash, control, not ASCII. The lowest mark is always right."""
    quotes, slashes = word ^ _QUOTES, word ^ _BACKSLASHES
    found = ((quotes - _ONES) & ~quotes) | ((slashes - _ONES) & ~slashes) | ((word - SPACES) & ~word) | word
    return found & _HIGHS


@inlined
def mixed(state, word):  # type: ignore[no-untyped-def]
    """A hash with one more word in it."""
    state = (state ^ word) * _FACTOR
    return state ^ (state >> _SHIFT)


@inlined
def leading_digits(word):  # type: ignore[no-untyped-def]
    """(count, value) of the decimal digits that a word begins with: eight bytes of text at once."""
    found = word ^ _ZEROS
    beyond = ((found + _ABOVE_NINE) | found) & _HIGHS  # the lowest mark is always right
    count = np.int64(8) if beyond == 0 else trailing_zeros(beyond) >> 3
    if count == 0:
        return count, np.int64(0)
    found <<= np.uint64(8 * (8 - count))  # zeros in front
    found = (found * np.uint64(10)) + (found >> _EIGHT)
    high = (found & _BYTE_PAIRS) * np.uint64(0x000F424000000064)
    low = ((found >> np.uint64(16)) & _BYTE_PAIRS) * np.uint64(0x0000271000000001)
    return count, np.int64((high + low) >> _SHIFT)


@inlined
def power_of_ten(count):  # type: ignore[no-untyped-def]
    """10 to a power from 0 to 8."""
    found = np.int64(10) if count & 1 else np.int64(1)
    found *= np.int64(100) if count & 2 else np.int64(1)
    found *= np.int64(10_000) if count & 4 else np.int64(1)
    return found * 100_000_000 if count & 8 else found


@inlined
def put_bytes(out, to, buffer, start, end):  # type: ignore[no-untyped-def]
    """Copies a slice of a padded buffer. Behind it, up to seven bytes of ``out`` are overwritten."""
    while start < end:
        put_uint64(out + to, 0, load8(buffer, start))
        to += 8
        start += 8


@inlined
def first_bytes(word, count):  # type: ignore[no-untyped-def]
    """The first ``count`` (less than 8) bytes of a word, the rest 0."""
    return word & ((_ONE << (np.uint64(count) * _EIGHT)) - _ONE)


@compiled
def hashed(buffer, start, end):  # type: ignore[no-untyped-def]
    """Hash of a slice: equal to what is mixed while a string is scanned."""
    state, at = SEED, start
    while at + 8 <= end:
        state = mixed(state, load8(buffer, at))
        at += 8
    return mixed(state, first_bytes(load8(buffer, at), end - at)) if at < end else state


@inlined
def equal(a, a_start, b, b_start, count):  # type: ignore[no-untyped-def]
    """Whether two slices of padded buffers hold the same bytes."""
    at = 0
    while at + 8 <= count:
        if load8(a, a_start + at) != load8(b, b_start + at):
            return False
        at += 8
    rest = count - at
    if rest == 0:
        return True
    return first_bytes(load8(a, a_start + at), rest) == first_bytes(load8(b, b_start + at), rest)
