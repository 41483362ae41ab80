"""speedscope: one timeline a thread and stream, each a sequence of frames that open and close, in ns.

Format: speedscope's published schema (file-format-schema.json), profiles of type ``evented``. Times count from the
first event of the trace, so all timelines are aligned and every value is an exact integer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import msgspec
import numpy as np
import pyarrow as pa

from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.exporters import json_lines
from perfkit_core.exporters.lanes import Lane, instants, lanes
from perfkit_core.exporters.stacks import frame
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import ExportOptions
from perfkit_core.runtime.compile import compiled

SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"
_EVENTS: Final = 1 << 15
_KINDS: Final = pa.array(['"type":"O"', '"type":"C"'])


def write(trace: Trace, file: BinaryIO, options: ExportOptions) -> str:
    """Write the timelines. Says when there are none."""
    found, spans = lanes(trace, apart=False), np.flatnonzero(~instants(trace))
    base, length = _extent(trace)
    lane = found.lane[spans]
    head = {"$schema": SCHEMA, "exporter": "perfkit", "name": _name(trace), "shared": {"frames": _frames(trace)}}
    file.write(msgspec.json.encode(head)[:-1])
    used, counts = np.unique(lane, return_counts=True)
    if len(used):
        file.write(b',"activeProfileIndex":%d' % _busiest([found.lanes[i] for i in used], counts))
    file.write(b',"profiles":[')
    for nth, index in enumerate(used):
        file.write((b",\n" if nth else b"\n") + _profile(found.lanes[index], length))
        for piece in _events(trace, spans[lane == index], base):
            file.write(piece)
        file.write(b"]}")
    file.write(b"]}\n")
    return "" if len(used) else "no events with a duration were recorded"


def _extent(trace: Trace) -> tuple[int, int]:
    if not len(trace):
        return 0, 0
    base = int(trace.ints("start_ns").min())
    return base, int(trace.end_ns.max()) - base


def _name(trace: Trace) -> str:
    return trace.meta.source.encode("utf-8", "replace").decode()


def _frames(trace: Trace) -> list[dict[str, Any]]:
    """All names, in the order of their codes; file and line where a name tells them."""
    found = (frame(name) for name in trace.codes("name").values)
    return [{key: value for key, value in (("name", one.name), ("file", one.file), ("line", one.line))
             if value is not None} for one in found]  # fmt: skip


def _busiest(used: list[Lane], counts: IntArray) -> int:
    """The timeline to show first: the thread with the most events, or the stream where there are no threads."""
    return max(range(len(used)), key=lambda i: (used[i].host, counts[i]))


def _profile(lane: Lane, length: int) -> bytes:
    name = f"{lane.process_name} · {lane.name}"
    head = {"type": "evented", "name": name, "unit": "nanoseconds", "startValue": 0, "endValue": length}
    return msgspec.json.encode(head)[:-1] + b',"events":['


def _events(trace: Trace, rows: IntArray, base: int) -> Iterator[bytes]:
    """The events of one timeline, which nest."""
    start, end = trace.ints("start_ns")[rows], trace.end_ns[rows]
    order = np.lexsort((-end, start))
    at, closes, which = _open_and_close(start[order] - base, end[order] - base)
    frames = trace.codes("name").codes[rows[order]].astype(np.int64)[which]
    for begin in range(0, len(at), _EVENTS):
        some = slice(begin, begin + _EVENTS)
        members = [
            _KINDS.take(pa.array(closes[some])),
            json_lines.number_member("at", at[some]),
            json_lines.number_member("frame", frames[some]),
        ]
        yield (b",\n" if begin else b"\n") + json_lines.as_bytes(json_lines.objects(members), ",\n")


@compiled
def _open_and_close(start, end):  # type: ignore[no-untyped-def]
    """When what opens (0) and closes (1), and which row it is. Rows nest and are sorted, outermost first."""
    count = len(start)
    at, closes, which = np.empty(2 * count, np.int64), np.empty(2 * count, np.int8), np.empty(2 * count, np.int64)
    stack = np.empty(count, np.int64)
    depth = written = 0
    for i in range(count + 1):
        while depth and (i == count or end[stack[depth - 1]] <= start[i]):
            depth -= 1
            at[written], closes[written], which[written] = end[stack[depth]], 1, stack[depth]
            written += 1
        if i < count:
            at[written], closes[written], which[written] = start[i], 0, i
            written += 1
            stack[depth] = i
            depth += 1
    return at, closes, which
