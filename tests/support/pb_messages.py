"""Messages of Paddle's protobuf, made by hand."""

from __future__ import annotations


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def number(field: int, value: int) -> bytes:
    return bytes([field << 3]) + varint(value)


def message(field: int, content: bytes) -> bytes:
    return bytes([field << 3 | 2]) + varint(len(content)) + content


def node(number_: int, parent: int, name: str, start: int, end: int, kind: int = 0) -> bytes:
    """Return a node of the tree of a thread. ``kind`` is its event type."""
    event = message(1, name.encode())
    event += b"".join(number(field, value) for field, value in ((2, kind), (3, start), (4, end), (5, 1), (6, 1)))
    return message(2, number(1, number_) + number(2, parent) + message(3, event))


def thread(*nodes: bytes) -> bytes:
    return message(3, number(1, 1) + b"".join(nodes))
