"""Schema of Paddle's profile protobuf, and the scanner that reads the protobuf into integer tables.

The schema follows the file ``paddle/fluid/platform/profiler/dump/nodetree.proto`` (proto2). Its field numbers are the
same in Paddle 2.3 to 3.3. A message with a ``table`` begins a new row in that table. A message without a table writes
into the row of the enclosing message.

The scanner walks through the file twice:

- The first walk counts the rows and sets marks at equal distances.
- The second walk fills the rows. Several threads do this in parallel, each from a mark.

Every length is checked against the end of the enclosing message, so no read leaves the buffer.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Annotated, Final

import numpy as np
import numpy.typing as npt

from perfkit_core.base.algorithms.arrays import BoolArray, IntArray, allocate
from perfkit_core.base.runtime import parallel
from perfkit_core.base.runtime.compiled import Out, compiled
from perfkit_paddle.pb_table import MISSING, OWNER, Table

PROBLEMS: Final = ("", "a number is truncated", "a message is longer than the enclosing message",
                   "the bytes are not a protobuf field", "a field has an unexpected type")  # fmt: skip
_OK, _OPEN_NUMBER, _TOO_LONG, _NO_FIELD, _WRONG_TYPE = range(5)
_DEPTH: Final = 16
_POSITION, _CLIPPED, _END, _MESSAGE, _ROW, _COUNTS = range(6)
"""Indices into a mark. A mark is an array that describes a position at which the scanner can begin:

- ``_POSITION``: the position of the mark in the file.
- ``_CLIPPED``: 1 if the message around the mark is truncated, else 0.
- ``_END``, ``_MESSAGE``, ``_ROW``: the end of this message, its index in the schema, and its row.
- ``_COUNTS`` and above: the number of rows of each table before the mark.
"""
_PARALLEL_BYTES: Final = 1 << 20
"""Files below this size, in bytes, are read by one thread, others by several."""

SKIP, INTEGER, FLOAT, TEXT, MESSAGE = range(5)
FIELDS: Final = 18
"""All field numbers of the schema are smaller than this number."""


@dataclass(frozen=True, slots=True)
class Message:
    """The fields of a message, in the order of their numbers from 1. An integer is written as ``name``, a text as
    ``name:text``, a float as ``name:float``, and a nested message as ``>message``."""

    table: str | None
    fields: tuple[str, ...]


MESSAGES: Final = {
    "file": Message("file", ("version:text", "span_index", ">thread", ">extra", ">property")),
    "thread": Message("thread", ("thread_id", ">host")),
    "host": Message("host", ("id", "parent_id", ">host_event", ">runtime", ">memory_node", ">supplement_node")),
    "host_event": Message(None, ("name:text", "type", "start_ns", "end_ns", "pid", "tid")),
    "runtime": Message("runtime", (">runtime_event", ">device_node")),
    "runtime_event": Message(None, ("name:text", "start_ns", "end_ns", "pid", "tid", "correlation", "callback")),
    "device_node": Message(None, (">device_event",)),
    "device_event": Message(
        "device",
        ("name:text", "type", "start_ns", "end_ns", "device", "context", "stream", "correlation", ">kernel", ">copy",
         ">set"),
    ),
    "kernel": Message(
        None,
        ("block_x", "block_y", "block_z", "grid_x", "grid_y", "grid_z", "dynamic_shared", "static_shared", "registers",
         "local_per_thread", "local_total", "queued_ns", "submitted_ns", "completed_ns", "blocks_per_sm:float",
         "warps_per_sm:float", "occupancy:float"),
    ),
    "copy": Message(None, ("bytes", "copy_kind:text", "source_kind:text", "target_kind:text")),
    "set": Message(None, ("bytes", "memory_kind:text", "value")),
    "memory_node": Message(None, (">memory_event",)),
    "memory_event": Message(
        "memory",
        ("start_ns", "type", "address", "pid", "tid", "bytes", "place:text", "allocated", "reserved", "peak_allocated",
         "peak_reserved"),
    ),
    "supplement_node": Message(None, (">supplement_event",)),
    "supplement_event": Message(
        "supplement", ("start_ns", "operator:text", "pid", "tid", "shapes:text", "dtypes:text", "stack:text")
    ),
    "extra": Message("extra", ("key:text", "value:text")),
    "property": Message(
        "property",
        ("id", "name:text", "totalGlobalMem", "computeMajor", "computeMinor", "maxThreadsPerBlock",
         "maxThreadsPerMultiprocessor", "regsPerBlock", "regsPerMultiprocessor", "warpSize", "sharedMemPerBlock",
         "sharedMemPerMultiprocessor", "numSms", "sharedMemPerBlockOptin"),
    ),
}  # fmt: skip
"""Name → message. The first message is the whole file."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The schema as arrays for the scanner. ``actions[m, n]`` and ``targets[m, n]`` describe field number ``n`` of the
    message with index ``m``.

    - ``actions``: what to do with the field: SKIP, INTEGER, FLOAT, TEXT or MESSAGE.
    - ``targets``: the column to write to. For the action MESSAGE, the inner message.
    - ``table_of``: the table in which a message begins a row, or -1.
    - ``holds_rows``: whether the message, or one inside it, begins a row.
    - ``columns``: the column names of each table. A text has two: ``name`` (its offset) and ``name.length``.
    """

    actions: npt.NDArray[np.int64]
    targets: npt.NDArray[np.int64]
    table_of: npt.NDArray[np.int64]
    holds_rows: npt.NDArray[np.bool_]
    tables: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]


@functools.cache
def layout() -> Layout:
    names = list(MESSAGES)
    tables = tuple(message.table for message in MESSAGES.values() if message.table)
    columns: dict[str, list[str]] = {table: [OWNER] for table in tables}
    shape = (len(names), FIELDS)
    plan = Layout(
        np.full(shape, SKIP, np.int64),
        np.zeros(shape, np.int64),
        np.array([tables.index(m.table) if m.table else -1 for m in MESSAGES.values()], np.int64),
        np.array([_holds_rows(name) for name in MESSAGES]),
        tables,
        (),
    )
    _add("file", "file", plan, columns)
    return replace(plan, columns=tuple(tuple(columns[table]) for table in tables))


def _holds_rows(name: str) -> bool:
    message = MESSAGES[name]
    return bool(message.table) or any(_holds_rows(f[1:]) for f in message.fields if f.startswith(">"))


def _add(name: str, table: str, layout: Layout, columns: dict[str, list[str]]) -> None:
    message = MESSAGES[name]
    row = list(MESSAGES).index(name)
    table = message.table or table
    for number, spec in enumerate(message.fields, start=1):
        field, _, kind = spec.partition(":")
        if field.startswith(">"):
            layout.actions[row, number] = MESSAGE
            layout.targets[row, number] = list(MESSAGES).index(field[1:])
            _add(field[1:], table, layout, columns)
            continue
        if field not in columns[table]:
            columns[table] += [field, f"{field}.length"] if kind == "text" else [field]
        layout.actions[row, number] = {"": INTEGER, "float": FLOAT, "text": TEXT}[kind]
        layout.targets[row, number] = columns[table].index(field)


@functools.lru_cache(1024)
def varint(value: int) -> bytes:
    """Return a base-128 number, as protobuf writes integers, tags and lengths."""
    digits = bytearray()
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


@dataclass(frozen=True, slots=True)
class Scan:
    """The tables by name. ``problem``: why the scan failed at the byte ``at``, or empty if the scan was successful."""

    tables: dict[str, Table]
    problem: str = ""
    at: int = 0


def scan(content: bytes | memoryview, clip: bool = False) -> Scan:
    """Return all tables of a file. If ``clip`` is set, a truncated file is read up to its last complete value."""
    data, plan = np.frombuffer(content, np.uint8), layout()
    widths = np.array([len(columns) for columns in plan.columns], np.int64)
    schema = plan.actions, plan.targets, plan.table_of, plan.holds_rows, widths
    marks = np.zeros((parallel.threads() if len(data) >= _PARALLEL_BYTES else 1, _COUNTS + len(widths)), np.int64)
    none, counts = np.zeros((2, len(widths)), np.int64)
    levels = np.zeros((5, _DEPTH), np.int64)
    _walk(data, *schema, none, none, np.empty(0, np.int64), clip, marks[0].copy(), len(data), marks, counts, levels)
    bases = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts * widths)])
    cells = allocate(int(bases[-1]), np.int64)
    # Several walks may fill a row of the file or of a top-level message. Therefore set MISSING before the walks.
    for number in {int(plan.table_of[0]), *plan.table_of[plan.targets[0, plan.actions[0] == MESSAGE]].tolist()}:
        cells[bases[number] : bases[number + 1]] = MISSING

    def fill(part: tuple[IntArray, int]) -> tuple[IntArray, int, int]:
        filled, levels = np.empty(len(widths), np.int64), np.zeros((5, _DEPTH), np.int64)
        return filled, *_walk(data, *schema, bases, counts, cells, clip, *part, marks[:0], filled, levels)

    begun = [marks[0], *(mark for mark in marks[1:] if mark[_POSITION])]  # an unused mark contains only zeros
    ends = [*(int(mark[_POSITION]) for mark in begun[1:]), len(data)]
    for walked in parallel.in_order(fill, list(zip(begun, ends, strict=True))):
        if walked[1]:
            break
    filled, problem, at = walked
    tables = {}
    for number, (name, columns) in enumerate(zip(plan.tables, plan.columns, strict=True)):
        part = cells[bases[number] : bases[number + 1]].reshape(len(columns), -1)
        tables[name] = Table(data, part[:, : filled[number]], columns)
    return Scan(tables, PROBLEMS[problem], int(at))


@compiled
def read_number(data: npt.NDArray[np.uint8], position: int, end: int) -> tuple[int, int]:
    """Return a base-128 number and the position after it. The position is -1 if the number is cut off or too long."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while position < end and shift < np.uint64(70):
        byte = np.uint64(data[position])
        position += 1
        value |= (byte & np.uint64(0x7F)) << shift if shift < np.uint64(64) else np.uint64(0)
        if byte < np.uint64(128):
            return int(np.int64(value)), position
        shift += np.uint64(7)
    return 0, -1


@compiled
def _fixed(data, position):  # type: ignore[no-untyped-def]
    value = np.int64(0)
    for i in range(4):
        value |= np.int64(data[position + i]) << np.int64(8 * i)
    return value


@compiled
def _walk(
    data: npt.NDArray[np.uint8], actions: Annotated[IntArray, 2], targets: Annotated[IntArray, 2], table_of: IntArray,
    holds_rows: BoolArray, widths: IntArray, bases: IntArray, room: IntArray, cells: Out[IntArray], clip: int,
    mark: IntArray, stop: int, marks: Out[Annotated[IntArray, 2]], counts: Out[IntArray],
    levels: Out[Annotated[IntArray, 2]],
) -> tuple[int, int]:  # fmt: skip
    """Walk over the messages from ``mark`` to byte ``stop``, and count rows. Unless ``cells`` is empty, also write the
    rows. Return the problem (an index into PROBLEMS), and the byte where the walk ended.

    - ``mark``: where the walk begins, with the numbers of rows up to there. All zeros mean the start of the file.
    - ``bases``: index in ``cells`` at which each table begins. The columns of a table follow each other.
    - ``room``: number of rows for which each column of a table has room.
    - ``marks``: receives marks at which other walks can begin, each between two fields of a top-level message.
    - ``cells``: the cells of all tables, or an empty array to count only.
    - ``counts``: receives the number of rows of each table, with the rows before ``mark``.
    - ``levels``: working memory of shape (5, _DEPTH), which must be 0.

    Cells without a value become MISSING. Exceptions are the rows of the file and of the top-level messages. Several
    walks may write to one such row, so the caller must set these rows to MISSING before the walks.
    """
    fill = len(cells) > 0
    for table in range(len(counts)):
        counts[table] = mark[_COUNTS + table]
    # ``homes`` are the indices of the rows' first cells, and ``strides`` the distances between adjacent cells of a row
    ends, messages, rows, homes, strides = levels[0], levels[1], levels[2], levels[3], levels[4]
    ends[0] = len(data)
    ends[1], messages[1], rows[1] = mark[_END], mark[_MESSAGE], mark[_ROW]
    for level in range(2):
        table = table_of[messages[level]]
        homes[level], strides[level] = bases[table] + rows[level], room[table]
    counts[table_of[0]] = 1
    position, clipped = mark[_POSITION], mark[_CLIPPED] > 0
    depth = 1 if position > 0 else 0
    number = 1  # number of the next mark
    while True:
        while position >= ends[depth]:
            if depth == 0:
                return _TOO_LONG if clipped else _OK, position
            depth -= 1
        if depth == 1:
            if position == stop:
                return _OK, position
            if number < len(marks) and position >= number * len(data) // len(marks):
                new = marks[number]
                new[_POSITION], new[_CLIPPED], new[_END] = position, clipped, ends[1]
                new[_MESSAGE], new[_ROW] = messages[1], rows[1]
                for table in range(len(counts)):
                    new[_COUNTS + table] = counts[table]
                number += 1
        end = ends[depth]
        begin = position
        tag, position = read_number(data, position, end)
        field = tag >> 3
        wire = tag & 7
        if position < 0 or tag > 0xFFFFFFFF or field < 1:
            return _OPEN_NUMBER if position < 0 else _NO_FIELD, begin
        action = actions[messages[depth], field] if field < FIELDS else 0
        cell = homes[depth] + targets[messages[depth], field] * strides[depth] if field < FIELDS else 0
        if wire == 0:
            value, position = read_number(data, position, end)
            if position < 0:
                return _OPEN_NUMBER, begin
            if action == INTEGER:
                if fill:
                    cells[cell] = value
            elif action:
                return _WRONG_TYPE, begin
        elif wire == 2:
            length, position = read_number(data, position, end)
            if position < 0:
                return _OPEN_NUMBER, begin
            if length < 0 or length > end - position:
                if not (clip and action == MESSAGE and end == len(data)):
                    return _TOO_LONG, begin
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
                    return _WRONG_TYPE, begin
                position += length
        elif wire == 5 or wire == 1:
            size = 4 if wire == 5 else 8
            if size > end - position:
                return _TOO_LONG, begin
            if action == FLOAT and wire == 5:
                if fill:
                    cells[cell] = _fixed(data, position)
            elif action:
                return _WRONG_TYPE, begin
            position += size
        else:
            return _NO_FIELD, begin
