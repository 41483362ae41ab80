"""Protobuf wire format to integer tables, in two passes over the bytes: count the rows, then fill them.

The first pass marks where the second one may begin, too: that is done by several threads, each from a mark to the next.

No read leaves the buffer, whatever the bytes are: every length is checked against the end of the message around it.
Texts stay where they are; the tables hold their offset and length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.algorithms.arrays import allocate
from perfkit_core.runtime import parallel
from perfkit_core.runtime.compile import compiled_at_once
from perfkit_paddle.pb_schema import FIELDS, FLOAT, INTEGER, MESSAGE, MISSING, TEXT, Layout, layout
from perfkit_paddle.pb_table import IntArray, Table

PROBLEMS: Final = ("", "a number does not end", "a message is longer than the one around it", "not a protobuf field",
                   "a known field has another type")  # fmt: skip
_OK, _OPEN_NUMBER, _TOO_LONG, _NO_FIELD, _WRONG_TYPE = range(5)
_DEPTH: Final = 16
_POSITION, _CLIPPED, _END, _MESSAGE, _ROW, _COUNTS = range(6)
"""Of a mark: its byte, whether the file broke off before, then the message there: where it ends, which it is, its row;
then the rows of all tables so far."""
_WORTH_BYTES: Final = 1 << 20
"""From so many bytes on a thread is worth it."""


@dataclass(frozen=True, slots=True)
class Scan:
    """What a scan found: tables by name; ``problem`` and ``at`` (byte) where it had to stop, "" when it did not."""

    tables: dict[str, Table]
    problem: str = ""
    at: int = 0


def scan(content: bytes | memoryview, clip: bool = False) -> Scan:
    """All tables of a file. ``clip`` reads a file that was cut off up to its last whole value."""
    data, plan = np.frombuffer(content, np.uint8), layout()
    widths = np.array([len(columns) for columns in plan.columns], np.int64)
    schema = plan.actions, plan.targets, plan.table_of, plan.holds_rows, widths
    marks = np.zeros((parallel.threads() if len(data) >= _WORTH_BYTES else 1, _COUNTS + len(widths)), np.int64)
    none = np.zeros(len(widths), np.int64)
    counts, _, _ = _walk(data, *schema, none, none, np.empty(0, np.int64), clip, marks[0], len(data), marks)
    bases = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts * widths)])
    cells = allocate(int(bases[-1]), np.int64)
    for number in _outer(plan):
        cells[bases[number] : bases[number + 1]] = MISSING

    def fill(part: tuple[IntArray, int]) -> tuple[IntArray, int, int]:
        found: tuple[IntArray, int, int] = _walk(data, *schema, bases, counts, cells, clip, *part, marks[:0])
        return found

    filled, problem, at = _last(parallel.in_order(fill, _parts(marks, len(data))))
    tables = {}
    for number, (name, columns) in enumerate(zip(plan.tables, plan.columns, strict=True)):
        part = cells[bases[number] : bases[number + 1]].reshape(len(columns), -1)
        tables[name] = Table(data, part[:, : filled[number]], columns)
    return Scan(tables, PROBLEMS[problem], int(at))


def _outer(plan: Layout) -> set[int]:
    """The tables whose rows several walks may fill: those of the file, and of the messages directly in it."""
    return {int(plan.table_of[0]), *plan.table_of[plan.targets[0, plan.actions[0] == MESSAGE]].tolist()}


def _parts(marks: IntArray, end: int) -> list[tuple[IntArray, int]]:
    """From which mark to which byte each walk goes; marks that found no place are all 0, as the first one is."""
    begun = [marks[0], *(mark for mark in marks[1:] if mark[_POSITION])]
    return list(zip(begun, [*(int(mark[_POSITION]) for mark in begun[1:]), end], strict=True))


def _last(walks: Iterator[tuple[IntArray, int, int]]) -> tuple[IntArray, int, int]:
    """What the last walk returns, or the first one that met a problem."""
    found = next(walks)
    for following in walks if not found[1] else ():
        found = following
        if found[1]:
            break
    return found


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
def _set(mark, position, clipped, end, message, row, counts):  # type: ignore[no-untyped-def]
    mark[_POSITION], mark[_CLIPPED], mark[_END] = position, clipped, end
    mark[_MESSAGE], mark[_ROW] = message, row
    mark[_COUNTS:] = counts


@compiled_at_once
def _walk(data, actions, targets, table_of, holds_rows, widths, bases, room, cells, clip, mark, stop, marks):  # type: ignore[no-untyped-def]
    """Walk all messages from a ``mark`` on (all 0: the beginning) without recursion, to byte ``stop``, where another
    mark is or the data ends; returns rows by table, problem, byte.

    Fills ``cells``, where each table has its columns one behind the other from its base on, with ``room`` for that many
    rows; what is not in the file is MISSING, if the rows of messages directly in the file were so before. Where
    ``cells`` is empty, rows are only counted, and messages that hold none are stepped over. ``marks`` are set in equal
    distances, as far as there is one: between two fields of a message that lies in no other but the file.
    """
    fill = len(cells) > 0
    counts = mark[_COUNTS:].copy()
    ends = np.zeros(_DEPTH, np.int64)
    messages = np.zeros(_DEPTH, np.int64)
    rows = np.zeros(_DEPTH, np.int64)
    homes = np.zeros(_DEPTH, np.int64)  # index of the row's first cell
    strides = np.zeros(_DEPTH, np.int64)  # from a cell to the next one of its row
    ends[0] = len(data)
    ends[1], messages[1], rows[1] = mark[_END], mark[_MESSAGE], mark[_ROW]
    for level in range(2):
        table = table_of[messages[level]]
        homes[level], strides[level] = bases[table] + rows[level], room[table]
    counts[table_of[0]] = 1
    position, clipped = mark[_POSITION], mark[_CLIPPED] > 0
    depth = 1 if position > 0 else 0
    number = 1  # of the next mark
    while True:
        while position >= ends[depth]:
            if depth == 0:
                return counts, _TOO_LONG if clipped else _OK, position
            depth -= 1
        if depth == 1:
            if position == stop:
                return counts, _OK, position
            if number < len(marks) and position >= number * len(data) // len(marks):
                _set(marks[number], position, clipped, ends[1], messages[1], rows[1], counts)
                number += 1
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
                    if fill and depth > 1:
                        for column in range(widths[table]):
                            cells[homes[depth] + column * strides[depth]] = MISSING
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
