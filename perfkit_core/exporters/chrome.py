"""Chrome-trace JSON, for Perfetto, chrome://tracing and perfkit's own reader, which gets every row back exactly.

Times are µs with three decimals since ``baseTimeNanoseconds``, written from integers. ``args`` of an event holds the
columns of the event table under their own names; ``row``, ``parent`` and ``launched_by`` are row numbers of the table
that was exported, ``recorded`` is what the framework recorded besides. Where an event ran stands once, in the list of
lanes of the header, because a viewer needs numbers of its own for rows.

Format: Google's "Trace Event Format".

The rows of the event table as events of a Chrome trace.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import msgspec
import numpy as np
import pyarrow as pa

from perfkit_core.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.exporters import json_lines
from perfkit_core.exporters.chrome_extras import extras
from perfkit_core.exporters.chrome_mark import FORMAT
from perfkit_core.exporters.json_lines import TextMember, microseconds, number_member, quoted
from perfkit_core.exporters.lanes import Lanes, instants, lanes
from perfkit_core.model import schema
from perfkit_core.model.meta import StoredFinding
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import ExportOptions

TOLD_BY_LANE: Final = ("rank", "pid", "tid", "stream")
_OWN_MEMBERS: Final = ("name", "category", "start_ns", "dur_ns", "device", "args", *TOLD_BY_LANE)


class Rows:
    """The rows of the table as events: a box each, or a mark for what has no duration by nature."""

    def __init__(self, trace: Trace, found: Lanes, base: int) -> None:
        self._trace, self._found, self._base = trace, found, base
        self._name, self._category = TextMember("name", trace.codes("name")), TextMember("cat", trace.codes("category"))
        self._where = pa.array([f'"pid":{lane.process},"tid":{lane.thread}' for lane in found.lanes], pa.string())
        self._instant = instants(trace)
        self._device = TextMember("device", trace.codes("device"))
        told = np.array([lane.device for lane in found.lanes], dtype=object)
        names = np.array([*trace.codes("device").values, None], dtype=object)
        self._elsewhere = names[trace.codes("device").codes] != told[found.lane]
        self._texts = [TextMember(c.name, trace.codes(c.name)) for c in _columns(text=True)]

    def lines(self, rows: IntArray) -> pa.Array:
        """One JSON object a row."""
        trace = self._trace
        start, dur = trace.ints("start_ns")[rows] - self._base, trace.ints("dur_ns")[rows]
        mark = pa.array(self._instant[rows])
        head = [
            pa.array(['"ph":"X"', '"ph":"i","s":"t"']).take(mark.cast(pa.int8())),
            self._name.take(rows),
            self._category.take(rows),
            json_lines.joined(['"ts":', microseconds(start)]),
            json_lines.joined(['"dur":', microseconds(dur)]),
            self._where.take(pa.array(self._found.lane[rows])),
        ]
        return json_lines.objects(head, self._arguments(rows))

    def _arguments(self, rows: IntArray) -> list[pa.Array]:
        members = [number_member("row", rows), *(text.take(rows) for text in self._texts)]
        elsewhere = pa.array(self._elsewhere[rows])
        members.append(pa.compute.if_else(elsewhere, self._device.take(rows), None))
        for column in _columns(text=False):
            values = self._trace.events[column.name].take(pa.array(rows)).combine_chunks()
            missing = values.is_null().to_numpy(zero_copy_only=False)
            filled = values.fill_null(NO_ROW).to_numpy(zero_copy_only=False)
            missing = missing | (filled == NO_ROW) if not column.nullable else missing
            members.append(number_member(column.name, filled, missing))
        members.append(_recorded(self._trace.events["args"].take(pa.array(rows)).combine_chunks()))
        return members


def _columns(text: bool) -> Iterator[schema.Column]:
    """The columns that are arguments under their own name."""
    for column in schema.COLUMNS:
        if column.name not in _OWN_MEMBERS and pa.types.is_dictionary(column.type) == text:
            yield column


def _recorded(args: pa.Array) -> pa.Array:
    """What else was recorded, as the JSON object that it is; as text where it is none after all."""
    if not _all_objects(args):
        args = pa.array([None if text is None else _object(text) for text in args.to_pylist()], pa.string())
    return pa.compute.binary_join_element_wise('"recorded":', args, "", null_handling="emit_null")


def _all_objects(args: pa.Array) -> bool:
    texts = args.drop_null()
    try:
        whole = b"[" + json_lines.as_bytes(texts, ",") + b"]"
        return len(msgspec.json.decode(whole, type=list[dict[str, msgspec.Raw]])) == len(texts)
    except msgspec.DecodeError:
        return False


def _object(text: str) -> str:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return quoted(text)
    return text


VERSION: Final = 1
ROWS: Final = 1 << 14
"""Rows written at once: what the writer holds in memory besides the trace."""


def write(trace: Trace, file: BinaryIO, options: ExportOptions) -> str:
    """Write the trace; see the module. Says when there is nothing to draw."""
    found = lanes(trace, apart=True)
    base = int(trace.ints("start_ns").min()) if len(trace) else 0
    file.write(_header(trace, found, base))
    separator = b"\n"
    for piece in _pieces(trace, found, base):
        file.write(separator + piece)
        separator = b",\n"
    file.write(b"\n]}\n")
    return "" if len(trace) else "no events were recorded"


def _header(trace: Trace, found: Lanes, base: int) -> bytes:
    source = os.fsencode(trace.meta.source).decode("utf-8", "replace")
    meta = msgspec.structs.replace(trace.meta, source=source)
    own = {
        "format": FORMAT,
        "version": VERSION,
        "meta": meta,
        "quality": list(map(StoredFinding.of, trace.quality)),
        "lanes": found.lanes,
    }
    head = {"perfkit": own, "displayTimeUnit": "ns", "baseTimeNanoseconds": base}
    return msgspec.json.encode(head)[:-1] + b',"traceEvents":['


def _pieces(trace: Trace, found: Lanes, base: int) -> Iterator[bytes]:
    """Text of the events, in the order of their times, some thousands at once."""
    names = _names(found)
    if names:
        yield ",\n".join(names).encode()
    order = np.lexsort((-trace.ints("dur_ns"), ~trace.host, trace.ints("start_ns")))  # launches before their work
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    body, more = Rows(trace, found, base), extras(trace, found, base, position)
    for begin in range(0, len(order), ROWS):
        end = min(begin + ROWS, len(order))
        lines, at = [body.lines(order[begin:end])], [np.arange(begin, end)]
        for extra in more:
            chosen = extra.between(begin, end)
            lines.append(extra.lines(chosen))
            at.append(extra.position[chosen])
        yield json_lines.as_bytes(_in_order(lines, at), ",\n")


def _in_order(lines: list[pa.Array], at: list[IntArray]) -> pa.Array:
    """Lines by position; at one position the event itself comes first, then what hangs on it."""
    return pa.concat_arrays(lines).take(pa.array(np.argsort(np.concatenate(at), kind="stable")))


def _names(found: Lanes) -> list[str]:
    """Metadata events: what the viewer calls processes and rows, and in which order it shows them."""
    lines, named = [], set()
    for lane in found.lanes:
        place = {"ph": "M", "pid": lane.process, "tid": lane.thread}
        facts: dict[str, Any] = {"thread_name": {"name": lane.name}, "thread_sort_index": {"sort_index": lane.thread}}
        if lane.process not in named:
            named.add(lane.process)
            facts["process_name"] = {"name": lane.process_name}
            facts["process_sort_index"] = {"sort_index": lane.process}
        lines += [msgspec.json.encode({"name": key, **place, "args": value}).decode() for key, value in facts.items()]
    return lines
