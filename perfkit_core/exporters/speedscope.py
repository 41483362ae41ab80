"""Speedscope timelines, with one ``evented`` profile per thread and stream (see ``SCHEMA``).

Times are in ns since the first event of the trace, so that all profiles have the same time axis and exact integers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import msgspec
import numpy as np
import pyarrow as pa

from perfkit_core.base.algorithms.arrays import ByteArray, IntArray
from perfkit_core.base.runtime.compiled import Out, compiled
from perfkit_core.exporters.chrome import as_bytes, number_member, objects
from perfkit_core.exporters.lanes import instants, lanes
from perfkit_core.exporters.stacks import frame
from perfkit_core.plugins.contracts import ExportOptions
from perfkit_core.trace.model.trace import Trace

SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"
_EVENTS: Final = 1 << 15
_KINDS: Final = pa.array(['"type":"O"', '"type":"C"'])


def write(trace: Trace, file: BinaryIO, options: ExportOptions) -> str:
    timeline, spans = lanes(trace, split_python=False), np.flatnonzero(~instants(trace))
    base = int(trace.ints("start_ns").min()) if len(trace) else 0
    length = int(trace.end_ns.max()) - base if len(trace) else 0
    parts = [{"name": part.name, "file": part.file, "line": part.line}
             for part in map(frame, trace.codes("name").values)]  # fmt: skip
    frames = [{key: value for key, value in part.items() if value is not None} for part in parts]
    name = trace.meta.source.encode("utf-8", "replace").decode()
    head: dict[str, Any] = {"$schema": SCHEMA, "exporter": "perfkit", "name": name, "shared": {"frames": frames}}
    lane = timeline.lane[spans]
    used, counts = np.unique(lane, return_counts=True)
    shown = [timeline.lanes[index] for index in used]
    if shown:  # speedscope shows this profile first: the thread with the most events, else a stream
        head["activeProfileIndex"] = max(range(len(shown)), key=lambda at: (shown[at].host, counts[at]))
    file.write(msgspec.json.encode(head)[:-1] + b',"profiles":[')
    for nth, index in enumerate(used):
        name = f"{shown[nth].process_name} · {shown[nth].name}"
        profile = {"type": "evented", "name": name, "unit": "nanoseconds", "startValue": 0, "endValue": length}
        file.write((b",\n" if nth else b"\n") + msgspec.json.encode(profile)[:-1] + b',"events":[')
        for piece in _events(trace, spans[lane == index], base):
            file.write(piece)
        file.write(b"]}")
    file.write(b"]}\n")
    return "" if len(used) else "no events with a duration were recorded"


def _events(trace: Trace, rows: IntArray, base: int) -> Iterator[bytes]:
    start, end = trace.ints("start_ns")[rows], trace.end_ns[rows]
    order = np.lexsort((-end, start))
    at, row = np.empty((2, 2 * len(rows)), np.int64)
    closes, stack = np.empty(2 * len(rows), np.int8), np.empty(len(rows), np.int64)
    _open_and_close(start[order] - base, end[order] - base, stack, at, closes, row)
    frames = trace.codes("name").codes[rows[order]].astype(np.int64)[row]
    for begin in range(0, len(at), _EVENTS):
        batch = slice(begin, begin + _EVENTS)
        members = [
            _KINDS.take(pa.array(closes[batch])),
            number_member("at", at[batch]),
            number_member("frame", frames[batch]),
        ]
        yield (b",\n" if begin else b"\n") + as_bytes(objects(members), ",\n")


@compiled
def _open_and_close(
    start: IntArray, end: IntArray,
    stack: Out[IntArray], at: Out[IntArray], closes: Out[ByteArray], row: Out[IntArray],
) -> None:  # fmt: skip
    """Fill three arrays with an item per speedscope event: its time, its type (0 opens a frame, 1 closes it) and its
    row. The rows must nest. They must be sorted by start, with outer rows first."""
    count = len(start)
    depth = written = 0
    for i in range(count + 1):
        while depth and (i == count or end[stack[depth - 1]] <= start[i]):
            depth -= 1
            at[written], closes[written], row[written] = end[stack[depth]], 1, stack[depth]
            written += 1
        if i < count:
            at[written], closes[written], row[written] = start[i], 0, i
            written += 1
            stack[depth] = i
            depth += 1
