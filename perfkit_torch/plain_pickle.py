"""Reader of pickles that contain only dictionaries, lists, numbers, texts, and tuples of numbers.

A pickle is a program. An unrestricted reader would run any function that the program names. This reader checks every
instruction before it reads the pickle. Instructions that import, call or build objects are refused. So are numbers in
the memo table that would allocate a huge table, nested tuples, whose hash overflows the stack of the process, and more
containers than the size of the pickle explains: an empty dictionary takes 1 byte of it, but 64 bytes of memory."""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Annotated, Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from perfkit_core.base.runtime.compiled import compiled
from perfkit_core.base.system.packages import no_collection
from perfkit_core.errors import SourceError

_NUMBERS: Final = ("NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT")
_STRUCTURE: Final = (
    "PROTO", "FRAME", "MARK", "STOP", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "APPEND", "APPENDS", "SETITEM",
    "SETITEMS", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET",
    "LONG_BINGET", "TUPLE1", "TUPLE2", "TUPLE3",
)  # fmt: skip
_REFUSED, _NUMBER, _OTHER, _TUPLE, _CONTAINER, _MEMO, _STOP = range(7)
_CONTAINER_BYTES: Final = 16
"""Least average size of a container in the pickle. torch's histories have 45 bytes for each container. The content then
takes at most about 20 times the memory of the pickle, because a dictionary with an item takes 232 bytes."""
_UNCOUNTED_BYTES: Final = 8 << 20
"""Added to the size of the pickle: the segments of torch 2.0 have only 9 bytes for each container."""
_LENGTHS: Final = {pickletools.TAKEN_FROM_ARGUMENT1: 1, pickletools.TAKEN_FROM_ARGUMENT4: 4,
                   pickletools.TAKEN_FROM_ARGUMENT4U: 4, pickletools.TAKEN_FROM_ARGUMENT8U: 8}  # fmt: skip
"""Size in bytes of the length that precedes an argument of variable length."""


def _rules() -> npt.NDArray[np.uint8]:
    """Return what the check needs to know about each instruction, shape (256, 4): its class, the number of bytes of its
    argument, the number of bytes of its argument's length, and how many values a tuple has."""
    rules = np.zeros((256, 4), np.uint8)
    for opcode in pickletools.opcodes:
        if opcode.name in _NUMBERS or opcode.name in _STRUCTURE:
            size = 0 if opcode.arg is None else opcode.arg.n
            tuple_size = int(opcode.name[-1]) if opcode.name.startswith("TUPLE") else 0
            kind = _NUMBER if opcode.name in _NUMBERS else _TUPLE if tuple_size else _OTHER
            kind = _CONTAINER if opcode.name in ("EMPTY_DICT", "EMPTY_LIST") else kind
            kind = _MEMO if opcode.name.endswith("PUT") else _STOP if opcode.name == "STOP" else kind
            rules[ord(opcode.code)] = kind, max(size, 0), _LENGTHS.get(size, 0), tuple_size
    return rules


@compiled
def _checked(data: npt.NDArray[np.uint8], rules: Annotated[npt.NDArray[np.uint8], 2]) -> int:
    """Return the position of the first instruction that is refused, or ``len(data)`` if the pickle ends too early. The
    result is -1 if all instructions are allowed, and -2 if the pickle has too many containers."""
    at, numbers, memoized = 0, 0, 0
    containers = (len(data) + _UNCOUNTED_BYTES) // _CONTAINER_BYTES  # that are still allowed
    while at < len(data):
        kind, values = rules[data[at], 0], rules[data[at], 3]
        counted = np.int64(rules[data[at], 2])
        size = counted + rules[data[at], 1]
        rest = len(data) - at - 1 - size
        if rest < 0:
            return len(data)
        argument = np.int64(0)
        for byte in range(size):
            argument += np.int64(data[at + 1 + byte]) << (8 * byte)
        containers -= kind in (_CONTAINER, _TUPLE)
        if kind == _REFUSED or (kind == _TUPLE and numbers < values) or (kind == _MEMO and argument > memoized):
            return at
        if containers < 0:
            return -2
        if kind == _STOP:
            return -1
        if counted:
            if argument < 0 or argument > rest:
                return len(data)
            size += argument
        if kind == _MEMO:
            memoized += 1
        numbers = numbers + 1 if kind == _NUMBER else 0
        at += 1 + size
    return len(data)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"the pickle names {module}.{name}")


def load(data: bytes, path: object) -> Any:
    """Return the content of a pickle. Raises SourceError if the pickle is damaged, or has other content than
    dictionaries, lists, numbers, texts, and tuples of numbers."""
    at = int(_checked(np.frombuffer(data, np.uint8), _rules()))
    if at == len(data):
        raise SourceError(f"{path}: truncated after byte {at}", "the file is incomplete: write it again")
    if at == -2:
        text = f"{path}: not read, because it has too many dictionaries and lists for its size"
        raise SourceError(text, "it is no file of torch.cuda.memory._dump_snapshot")
    if at >= 0:
        text = f"{path}: not read, because a pickle may run code (instruction {data[at]:#04x} at byte {at})"
        raise SourceError(text, "perfkit reads pickles that hold only dictionaries, lists, texts and numbers")
    try:
        with no_collection():
            return _Unpickler(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, TypeError,
            ValueError) as error:  # fmt: skip
        reason = f"{path}: the pickle is damaged ({type(error).__name__}: {error})"
        raise SourceError(reason, "write the file again") from None
