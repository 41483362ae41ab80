"""Paddle's profile protobuf as data: which field of which message goes to which column of which table.

Source: ``paddle/fluid/platform/profiler/dump/nodetree.proto`` (proto2), unchanged in its field numbers from Paddle 2.3
to 3.3. A message with a ``table`` begins a row there; one without writes into the row of the message around it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

SKIP: Final = 0
INTEGER: Final = 1
FLOAT: Final = 2
TEXT: Final = 3
MESSAGE: Final = 4

OWNER: Final = "owner"
"""First column of every table: the row of the message around the row's own."""

MISSING: Final = -(2**63)
"""Content of a cell that was not in the file."""

FIELDS: Final = 18
"""Field numbers below this are known."""


@dataclass(frozen=True, slots=True)
class Message:
    """Fields by number. ``name``: integer, ``name:text``, ``name:float``, ``>message`` (nested), "" (not read)."""

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
"""The first is the file itself."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The schema as the arrays that the scanner walks: for each message and field number an action and a target.

    The target is a column for values, a message for ``MESSAGE``. ``table_of[m]`` is -1 where a message begins no row;
    ``holds_rows[m]`` says whether one begins in it or in a message inside.
    ``columns[t]`` names the columns of a table; a text takes two (byte offset, then length under ``name.length``).
    """

    actions: npt.NDArray[np.int64]
    targets: npt.NDArray[np.int64]
    table_of: npt.NDArray[np.int64]
    holds_rows: npt.NDArray[np.bool_]
    tables: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]


@functools.cache
def layout() -> Layout:
    """The compiled schema."""
    names = list(MESSAGES)
    tables = tuple(message.table for message in MESSAGES.values() if message.table)
    columns: dict[str, list[str]] = {table: [OWNER] for table in tables}
    shape = (len(names), FIELDS)
    compiled = Layout(
        np.full(shape, SKIP, np.int64),
        np.zeros(shape, np.int64),
        np.array([tables.index(m.table) if m.table else -1 for m in MESSAGES.values()], np.int64),
        np.array([_holds_rows(name) for name in MESSAGES]),
        tables,
        (),
    )
    _compile("file", "file", compiled, columns)
    return replace(compiled, columns=tuple(tuple(columns[table]) for table in tables))


def _holds_rows(name: str) -> bool:
    message = MESSAGES[name]
    return bool(message.table) or any(_holds_rows(f[1:]) for f in message.fields if f.startswith(">"))


def _compile(name: str, table: str, into: Layout, columns: dict[str, list[str]]) -> None:
    message = MESSAGES[name]
    row = list(MESSAGES).index(name)
    table = message.table or table
    for number, spec in enumerate(message.fields, start=1):
        field, _, kind = spec.partition(":")
        if field.startswith(">"):
            into.actions[row, number] = MESSAGE
            into.targets[row, number] = list(MESSAGES).index(field[1:])
            _compile(field[1:], table, into, columns)
        else:
            into.actions[row, number] = {"": INTEGER, "float": FLOAT, "text": TEXT}[kind]
            into.targets[row, number] = _column(columns[table], field, kind)


def _column(columns: list[str], field: str, kind: str) -> int:
    if field not in columns:
        columns += [field, f"{field}.length"] if kind == "text" else [field]
    return columns.index(field)
