"""Read protobuf bytes without a schema or a library. The result maps field numbers to their values."""

from __future__ import annotations

from collections import defaultdict

Fields = dict[int, list[int | bytes]]


def fields(data: bytes) -> Fields:
    """Return the values of each field. Varints are unsigned numbers, other values are bytes."""
    found: Fields = defaultdict(list)
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        size = {1: 8, 5: 4}.get(kind)
        if size is None:
            size, at = _varint(data, at)
        if kind == 0:
            found[number].append(size)
            continue
        found[number].append(data[at : at + size])
        at += size
    return found


def packed(values: list[int | bytes]) -> list[int]:
    """Return the numbers of a repeated field, whether packed or not."""
    result: list[int] = []
    for value in values:
        if isinstance(value, int):
            result.append(value)
            continue
        at = 0
        while at < len(value):
            one, at = _varint(value, at)
            result.append(one)
    return result


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
