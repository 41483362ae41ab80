"""What many events share, in one number: category and name, process, thread, and the place of their work."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.addresses import inlined
from perfkit_core.sources.scan.state import number_of

_BITS: Final = 20
_MASK: Final = (1 << _BITS) - 1


@inlined
def origin(memory, pair, process, thread, place):  # type: ignore[no-untyped-def]
    """(number, odd) of the origin. Negative: no room; odd: these numbers are too large to stand in one."""
    odd = process > _MASK or thread > _MASK or place > _MASK
    lane = number_of(memory.lanes, np.int64(0) if odd else (process << (2 * _BITS)) | (thread << _BITS) | place)
    return lane if lane < 0 else number_of(memory.origins, (pair << 32) | lane), odd


def origin_parts(key: int, lanes: list[int]) -> tuple[int, int, int, int]:
    """(pair, process, thread, place) of an origin."""
    lane = lanes[key & 0xFFFFFFFF]
    return key >> 32, lane >> (2 * _BITS), (lane >> _BITS) & _MASK, lane & _MASK
