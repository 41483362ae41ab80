"""Inputs of an operator as Paddle records them (old static graph only): shapes by slot, variable types, Python stack.

The same helpers serve the protobuf, the JSON and the live tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from perfkit_paddle.pb_table import Table

_FRAME: Final = re.compile(r'File "([^"]*)", line (\d+), in (.+)')

Shapes = Mapping[str, Sequence[Sequence[int]]]


def columns(shapes: Shapes, types: Mapping[str, Sequence[str]], stack: str) -> dict[str, str | None]:
    """Text of the columns shapes (a list of shapes in the order of the slots), stack, and args (slots and types)."""
    listed = [list(shape) for slot in shapes.values() for shape in slot]
    rest = {"input_slots": {slot: len(found) for slot, found in shapes.items()}, "input_types": types}
    told = {key: value for key, value in rest.items() if value}
    return {
        "shapes": msgspec.json.encode(listed).decode() if listed else None,
        "stack": stack_text(stack),
        "args": msgspec.json.encode(told).decode() if told else None,
    }


def stack_text(text: str) -> str | None:
    """Paddle's traceback (innermost last) as ``file:line function`` frames, innermost first, separated by ';'."""
    frames = [f"{match[1]}:{match[2]} {match[3].strip()}" for match in _FRAME.finditer(text)]
    return ";".join(reversed(frames)) or None


def decode_inputs(table: Table, index: int) -> dict[str, str | None]:
    """The columns of one supplement row of a protobuf. What is damaged inside is left out."""
    shapes = _by_slot(_bytes(table, index, "shapes"), _shape)
    types = _by_slot(_bytes(table, index, "dtypes"), lambda raw: raw.decode("utf-8", "replace"))
    return columns(shapes, types, _bytes(table, index, "stack").decode("utf-8", "replace"))


def _bytes(table: Table, index: int, column: str) -> bytes:
    start, length = int(table[column][index]), int(table[f"{column}.length"][index])
    return table.data[start : start + length].tobytes() if start >= 0 else b""


def _by_slot(raw: bytes, read: Any) -> dict[str, list[Any]]:
    """A message of repeated keys (1) and as many lists (2) of items (1)."""
    found = list(_fields(raw))
    keys = [value.decode("utf-8", "replace") for number, value in found if number == 1 and isinstance(value, bytes)]
    lists = [value for number, value in found if number == 2 and isinstance(value, bytes)]
    items = [[read(item) for _, item in _fields(value) if isinstance(item, bytes)] for value in lists]
    return dict(zip(keys, items, strict=False))


def _shape(raw: bytes) -> list[int]:
    return [value for number, value in _fields(raw) if number == 1 and isinstance(value, int)]


def _fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field number and value of each number or text; ends at the first that is neither or not whole."""
    position = 0
    while position < len(raw):
        tag, position = _number(raw, position)
        value, position = _number(raw, position)
        if position < 0 or tag & 7 not in (0, 2):
            return
        if tag & 7 == 0:
            yield tag >> 3, value
            continue
        if position + value > len(raw):
            return
        yield tag >> 3, raw[position : position + value]
        position += value


def _number(raw: bytes, position: int) -> tuple[int, int]:
    """A base-128 number and the position behind it, -1 when it is not whole."""
    value = 0
    for shift in range(0, 70, 7):
        if not 0 <= position < len(raw):
            return 0, -1
        byte = raw[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    return 0, -1
