"""Memory events from the vendor's table of allocations.

The table pairs each allocation with its release, but has no addresses. perfkit numbers the blocks instead.

Two allocators take memory of the device: that of the framework, and that of the graph engine, whose rows have no
stream. The total after an event is the sum of both."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, Codes, IntArray, one_of, picked, to_codes, to_int64
from perfkit_core.base.algorithms.groupby import parts
from perfkit_core.readers.ascend.database_columns import json_objects
from perfkit_core.readers.ascend.host_calls import around
from perfkit_core.trace.assembly.draft import RECORDED_TYPES, RecordedEvents, integers
from perfkit_core.trace.model import schema

NAME: Final = "[memory]"
ALLOCATIONS: Final = pa.schema(
    [
        pa.field("name", pa.string()), pa.field("bytes", pa.int64()), pa.field("allocation_ns", pa.int64()),
        pa.field("release_ns", pa.int64()), pa.field("stream", pa.string()), pa.field("device", pa.string()),
        pa.field("allocation_allocated", pa.int64()), pa.field("allocation_reserved", pa.int64()),
        pa.field("release_allocated", pa.int64()), pa.field("release_reserved", pa.int64()),
    ]
)  # fmt: skip
"""An allocation: the operator that made it, its size, when it began and ended (null if it did not end), and the totals
of its allocator after that."""


def with_memory(recorded: RecordedEvents, allocations: pa.Table | None) -> tuple[RecordedEvents, int]:
    """Return the events with a memory event for the begin and the end of each allocation, and the number of allocations
    without a size or a time."""
    allocations = ALLOCATIONS.empty_table() if allocations is None else allocations
    times = (allocations[f"{when}_ns"].is_valid() for when in ("allocation", "release"))
    usable = allocations.filter(pc.and_(allocations["bytes"].is_valid(), pc.or_(*times)))
    lost, allocations = len(allocations) - len(usable), usable
    if not len(allocations):
        return recorded, lost
    count = len(allocations)
    cells = {name: to_int64(allocations[name].chunks, count, NO_ROW) for name in ALLOCATIONS.names
             if pa.types.is_int64(ALLOCATIONS.field(name).type)}  # fmt: skip
    begins, ends = (np.flatnonzero(cells[f"{when}_ns"] >= 0) for when in ("allocation", "release"))
    source = np.concatenate([begins, ends])
    of_end = np.arange(len(source)) >= len(begins)
    start, allocated, reserved = (
        np.where(of_end, cells[f"release{name}"][source], cells[f"allocation{name}"][source])
        for name in ("_ns", "_allocated", "_reserved")
    )
    order = np.argsort(start, kind="stable")
    source, of_end, start = source[order], of_end[order], start[order]
    change = np.where(of_end, -1, 1) * cells["bytes"][source]
    framework = allocations["stream"].is_valid().combine_chunks().to_numpy(zero_copy_only=False)[source]
    total = _of_both(allocated[order], change, framework)
    reserve = _of_both(reserved[order], np.zeros(len(source), np.int64), framework)
    pid, tid = _threads(recorded, allocations["name"].combine_chunks().take(pa.array(source)), start)
    tid[of_end] = NO_ROW
    rows = pa.table(
        {
            "name": pa.repeat(NAME, len(source)).dictionary_encode(),
            "kind": pa.repeat(schema.MEMORY, len(source)).dictionary_encode(),
            "start_ns": start, "dur_ns": np.zeros(len(source), np.int64),
            "pid": pa.array(pid, mask=pid < 0), "tid": pa.array(tid, mask=tid < 0),
            "device": allocations["device"].take(pa.array(source)).combine_chunks().dictionary_encode(),
            "bytes": change, "address": source + 1, "total_bytes": pa.array(total, mask=total < 0),
            "args": json_objects({"Total Reserved": reserve}),
        }
    )  # fmt: skip
    rows = rows.cast(pa.schema([pa.field(name, RECORDED_TYPES[name]) for name in rows.column_names]))
    columns = pa.concat_tables([recorded.columns, rows], promote_options="default").unify_dictionaries()
    parent = recorded.parent
    if parent is not None:
        parent = np.append(parent, np.full(len(rows), NO_ROW))
    return replace(recorded, columns=columns, parent=parent), lost


def _of_both(level: IntArray, change: IntArray, framework: BoolArray) -> IntArray:
    """Return the sum of the levels of both allocators after each event. Before its first event, an allocator has the
    level before this event."""
    total = np.zeros(len(level), np.int64)
    for mine in (framework, ~framework):
        at = np.flatnonzero(mine & (level >= 0))
        if len(at):
            last = np.searchsorted(at, np.arange(len(level)), side="right") - 1
            total += np.where(last >= 0, level[at[np.maximum(last, 0)]], level[at[0]] - change[at[0]])
    return total


def _threads(recorded: RecordedEvents, names: pa.Array, start: IntArray) -> tuple[IntArray, IntArray]:
    """Return the process, and the thread of the operator with this name that ran at each time, or -1."""
    columns = recorded.columns
    rows = np.flatnonzero(one_of(columns["kind"], *schema.OPERATOR_KINDS))
    pids, tids, begins, durations = (integers(columns, name)[rows] for name in ("pid", "tid", "start_ns", "dur_ns"))
    numbers, counts = np.unique(pids, return_counts=True)
    pid = np.full(len(start), numbers[counts.argmax()] if len(numbers) else NO_ROW)
    tid = np.full(len(start), NO_ROW)
    called = Codes(*to_codes([picked(columns["name"], rows)], len(rows)))
    wanted = Codes(*to_codes([names.fill_null("").dictionary_encode()], len(names)))
    code_of = {name: code for code, name in enumerate(called.values)}
    by_name = np.argsort(called.codes, kind="stable")
    for name, here in zip(wanted.values, parts(wanted.codes.astype(np.int64), len(wanted.values)), strict=True):
        code = code_of.get(name, len(code_of))
        mine = by_name[slice(*np.searchsorted(called.codes[by_name], (code, code + 1)))]
        call = around(mine, begins[mine], begins[mine] + durations[mine], start[here])
        tid[here[call != NO_ROW]] = tids[call[call != NO_ROW]]
    return pid, tid
