"""Durations that a profiler glues to names: ``matmul[12.345 us]``."""

from __future__ import annotations

from perfkit_core.addresses import by_address, byte


@by_address
def before_duration(buffer, start, end):  # type: ignore[no-untyped-def]
    """Where the name without its duration ends; -1 when it has none. Recognises ``[1 ns]``, ``[1.5 us]``, ms and s."""
    at = end - 1
    if at <= start or byte(buffer, at) != 0x5D or byte(buffer, at - 1) != 0x73:  # "s]"
        return -1
    at -= 2
    if at > start and (byte(buffer, at) == 0x6E or byte(buffer, at) == 0x75 or byte(buffer, at) == 0x6D):  # n, u, m
        at -= 1
    if at <= start or byte(buffer, at) != 0x20:
        return -1
    digits_end = at
    at = _digits_before(buffer, start, at)
    if at == digits_end:
        return -1
    if at > start and byte(buffer, at - 1) == 0x2E:
        whole = _digits_before(buffer, start, at - 1)
        if whole == at - 1:
            return -1
        at = whole
    return at - 1 if at > start and byte(buffer, at - 1) == 0x5B else -1


@by_address
def _digits_before(buffer, start, end):  # type: ignore[no-untyped-def]
    at = end
    while at > start and 0x30 <= byte(buffer, at - 1) <= 0x39:
        at -= 1
    return at
