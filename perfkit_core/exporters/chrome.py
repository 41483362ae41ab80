"""Chrome-trace JSON, for Perfetto, chrome://tracing and perfkit's own reader, which gets every row back exactly.

Times are µs with three decimals since ``baseTimeNanoseconds``, written from integers. ``args`` of an event holds the
columns of the event table under their own names; ``row``, ``parent`` and ``launched_by`` are row numbers of the table
that was exported, ``recorded`` is what the framework recorded besides. Where an event ran stands once, in the list of
lanes of the header, because a viewer needs numbers of its own for rows.

Format: Google's "Trace Event Format".
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import msgspec
import numpy as np
import pyarrow as pa

from perfkit_core.exporters import json_lines
from perfkit_core.exporters.chrome_extras import extras
from perfkit_core.exporters.chrome_rows import Rows
from perfkit_core.exporters.lanes import Lanes, lanes
from perfkit_core.plugins.contracts import ExportOptions
from perfkit_core.sources.own_chrome_mark import FORMAT
from perfkit_core.trace import IntArray, Trace
from perfkit_core.trace_meta import StoredFinding

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
