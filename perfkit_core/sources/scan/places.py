"""What tells the device of an event, packed into one number: its label, its process, and up to AUX arguments."""

from __future__ import annotations

import numpy as np

from perfkit_core.addresses import by_address, int64
from perfkit_core.sources.scan.state import AUX, number_of

_CLASS_BITS, _PID_BITS, _AUX_BITS = 10, 14, 12


@by_address
def place(memory, label, process):  # type: ignore[no-untyped-def]
    """(number, odd) of what tells the device: the label, the process and the arguments. FULL: no room."""
    key, shift = label | (process << _CLASS_BITS), _CLASS_BITS + _PID_BITS
    odd = label >= 1 << _CLASS_BITS or process >= 1 << _PID_BITS
    for i in range(AUX):
        odd = odd or int64(memory.aux, i) >= 1 << _AUX_BITS
        key |= int64(memory.aux, i) << (shift + i * _AUX_BITS)
    return number_of(memory.places, np.int64(0) if odd else key + 1), odd


def place_parts(key: int) -> tuple[int, int, list[int]]:
    """(label, process, arguments) of a place: number 0 of ``memory.places`` is the host's, whose key is 0."""
    key -= 1
    label, key = key & ((1 << _CLASS_BITS) - 1), key >> _CLASS_BITS
    process, key = key & ((1 << _PID_BITS) - 1), key >> _PID_BITS
    return label, process, [(key >> (i * _AUX_BITS)) & ((1 << _AUX_BITS) - 1) for i in range(AUX)]
