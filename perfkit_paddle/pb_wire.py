"""Protobuf wire format to integer tables, in two passes over the bytes: count the rows, then fill them.

No read leaves the buffer, whatever the bytes are: every length is checked against the end of the message around it.
Texts stay where they are; the tables hold their offset and length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.compiling import compiled_at_once
from perfkit_core.memory import column
from perfkit_paddle.pb_schema import FIELDS, FLOAT, INTEGER, MESSAGE, MISSING, TEXT, layout
from perfkit_paddle.pb_table import Table

PROBLEMS: Final = ("", "a number does not end", "a message is longer than the one around it", "not a protobuf field",
                   "a known field has another type")  # fmt: skip
_OK, _OPEN_NUMBER, _TOO_LONG, _NO_FIELD, _WRONG_TYPE = range(5)
_DEPTH: Final = 16


@dataclass(frozen=True, slots=True)
class Scan:
    """What a scan found: tables by name; ``problem`` and ``at`` (byte) where it had to stop, "" when it did not."""

    tables: dict[str, Table]
    problem: str = ""
    at: int = 0


def scan(content: bytes | memoryview, clip: bool = False) -> Scan:
    """All tables of a file. ``clip`` reads a file that was cut off up to its last whole value."""
    data = np.frombuffer(content, np.uint8)
    plan = layout()
    widths = np.array([len(columns) for columns in plan.columns], np.int64)
    schema = plan.actions, plan.targets, plan.table_of, plan.holds_rows
    none = np.zeros(len(widths), np.int64)
    counts, _, _ = _walk(data, *schema, none, none, np.empty(0, np.int64), clip)
    bases = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts * widths)])
    cells = column(int(bases[-1]), np.int64)
    cells[:] = MISSING
    filled, problem, at = _walk(data, *schema, bases, counts, cells, clip)
    tables = {}
    for number, (name, columns) in enumerate(zip(plan.tables, plan.columns, strict=True)):
        part = cells[bases[number] : bases[number + 1]].reshape(len(columns), -1)
        tables[name] = Table(data, part[:, : filled[number]], columns)
    return Scan(tables, PROBLEMS[problem], int(at))


@compiled_at_once
def read_number(data, position, end):  # type: ignore[no-untyped-def]
    """A base-128 number and the position behind it; position -1 when it does not end before ``end`` or in 10 bytes."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while position < end and shift < np.uint64(70):
        byte = np.uint64(data[position])
        position += 1
        value |= (byte & np.uint64(0x7F)) << shift if shift < np.uint64(64) else np.uint64(0)
        if byte < np.uint64(128):
            return np.int64(value), position
        shift += np.uint64(7)
    return np.int64(0), -1


@compiled_at_once
def _fixed(data, position):  # type: ignore[no-untyped-def]
    """Four little-endian bytes. The caller has checked that they are there."""
    value = np.int64(0)
    for i in range(4):
        value |= np.int64(data[position + i]) << np.int64(8 * i)
    return value


@compiled_at_once
def _walk(data, actions, targets, table_of, holds_rows, bases, room, cells, clip):  # type: ignore[no-untyped-def]
    """Walk all messages without recursion; returns rows by table, problem, byte.

    Fills ``cells``, where each table has its columns one behind the other from its base on, with ``room`` for that many
    rows. Where ``cells`` is empty, rows are only counted, and messages that hold none are stepped over.
    """
    fill = len(cells) > 0
    counts = np.zeros(len(bases), np.int64)
    ends = np.zeros(_DEPTH, np.int64)
    messages = np.zeros(_DEPTH, np.int64)
    rows = np.zeros(_DEPTH, np.int64)
    homes = np.zeros(_DEPTH, np.int64)  # index of the row's first cell
    strides = np.zeros(_DEPTH, np.int64)  # from a cell to the next one of its row
    depth = 0
    ends[0] = len(data)
    counts[table_of[0]] = 1
    strides[0] = room[table_of[0]]
    position = 0
    clipped = False
    while True:
        while position >= ends[depth]:
            if depth == 0:
                return counts, _TOO_LONG if clipped else _OK, position
            depth -= 1
        end = ends[depth]
        begin = position
        tag, position = read_number(data, position, end)
        field = tag >> 3
        wire = tag & 7
        if position < 0 or tag > 0xFFFFFFFF or field < 1:
            return counts, _OPEN_NUMBER if position < 0 else _NO_FIELD, begin
        action = actions[messages[depth], field] if field < FIELDS else 0
        cell = homes[depth] + targets[messages[depth], field] * strides[depth] if field < FIELDS else 0
        if wire == 0:
            value, position = read_number(data, position, end)
            if position < 0:
                return counts, _OPEN_NUMBER, begin
            if action == INTEGER:
                if fill:
                    cells[cell] = value
            elif action:
                return counts, _WRONG_TYPE, begin
        elif wire == 2:
            length, position = read_number(data, position, end)
            if position < 0:
                return counts, _OPEN_NUMBER, begin
            if length < 0 or length > end - position:
                if not (clip and action == MESSAGE and end == len(data)):
                    return counts, _TOO_LONG, begin
                clipped = True
                length = end - position
            inner = targets[messages[depth], field] if action == MESSAGE else 0
            if action == MESSAGE and not fill and not holds_rows[inner]:
                position += length
            elif action == MESSAGE:
                table = table_of[inner]
                depth += 1
                ends[depth] = position + length
                messages[depth] = inner
                rows[depth] = rows[depth - 1]
                homes[depth] = homes[depth - 1]
                strides[depth] = strides[depth - 1]
                if table >= 0:
                    rows[depth] = counts[table]
                    counts[table] += 1
                    homes[depth] = bases[table] + rows[depth]
                    strides[depth] = room[table]
                    if fill:
                        cells[homes[depth]] = rows[depth - 1]
            else:
                if action == TEXT:
                    if fill:
                        cells[cell] = position
                        cells[cell + strides[depth]] = length
                elif action:
                    return counts, _WRONG_TYPE, begin
                position += length
        elif wire == 5 or wire == 1:
            size = 4 if wire == 5 else 8
            if size > end - position:
                return counts, _TOO_LONG, begin
            if action == FLOAT and wire == 5:
                if fill:
                    cells[cell] = _fixed(data, position)
            elif action:
                return counts, _WRONG_TYPE, begin
            position += size
        else:
            return counts, _NO_FIELD, begin
