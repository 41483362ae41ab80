"""Memory by its address, in compiled code: loads and stores of any alignment, and copies eight bytes at a time.

Nothing is checked: the caller of compiled code keeps alive what an address points to, and knows what is there.

A module of its own, because it imports numba, which small recordings do without.
"""

from __future__ import annotations

import functools
from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from perfkit_core.runtime import compile

WORD: Final = 8

by_address = functools.partial(compile.compiled_at_once, error_model="numpy", _nrt=False)
"""Compiled without reference counting: nothing is allocated, and the caller keeps alive what addresses point to."""
inlined = functools.partial(by_address, forceinline=True)
"""The same, for what is small or called from one place only: numba hands results of several values over in memory."""


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


@inlined
def put_bytes(out, to, buffer, start, end):  # type: ignore[no-untyped-def]
    """Copies a slice, word by word: up to seven bytes behind it are read, and behind the copy overwritten."""
    while start < end:
        put_uint64(out + to, 0, load8(buffer, start))
        to += WORD
        start += WORD
