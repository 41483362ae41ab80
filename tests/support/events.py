"""Create small traces by hand: ``trace([host(...), device(...)])``."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from perfkit_core.trace.assembly.assemble import OperatorNames, assemble
from perfkit_core.trace.assembly.draft import RecordedEvents
from perfkit_core.trace.model.meta import TraceMeta
from perfkit_core.trace.model.side_tables import SideTables
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage.older_format import without_facts


def host(name: str, kind: str, start: int, dur: int, tid: int = 1, **more: Any) -> dict[str, Any]:
    """Return an event of process 1 on a host thread."""
    return {"name": name, "kind": kind, "start_ns": start, "dur_ns": dur, "device": "cpu", "pid": 1, "tid": tid, **more}


def device(name: str, kind: str, start: int, dur: int, correlation: int | None = None, **more: Any) -> dict[str, Any]:
    """Return an event on stream 7 of the first device."""
    place = {"device": "cuda:0", "stream": 7, "correlation": correlation}
    return {"name": name, "kind": kind, "start_ns": start, "dur_ns": dur, **place, **more}


def trace(rows: list[dict[str, Any]], rank: int | None = None, names: OperatorNames | None = None) -> Trace:
    """Return the trace that is assembled from these events. Members ``collective`` and ``perfkit.serving`` of ``args``
    become side tables."""
    keys = dict.fromkeys(key for row in rows for key in row)
    table = pa.Table.from_pylist([{key: row.get(key) for key in keys} for row in rows])
    meta = TraceMeta(source="made by hand", format="test", framework="fw", ranks=() if rank is None else (rank,))
    args, tables = without_facts(table["args"].cast(pa.string())) if "args" in keys else (None, {})
    if tables:
        table = table.set_column(table.column_names.index("args"), "args", args)
    return assemble(RecordedEvents(table, None, SideTables(tables)), meta, rank=rank, operator_names=names)


def column(trace: Trace, name: str) -> dict[str, Any]:
    """Return the values of a column by the names of the events."""
    return dict(zip(trace.events["name"].to_pylist(), trace.events[name].to_pylist(), strict=True))


def rows(trace: Trace, *names: str) -> list[tuple[Any, ...]]:
    """Return the values of some columns, one tuple for each event."""
    return list(zip(*(trace.events[name].to_pylist() for name in names), strict=True))


def names_of_rows(trace: Trace, reference: str) -> dict[str, str | None]:
    """Return, for each event name, the name of the row that ``parent`` or ``launched_by`` refers to."""
    names = trace.events["name"].to_pylist()
    return {name: names[row] if row >= 0 else None for name, row in column(trace, reference).items()}


def codes(trace: Trace) -> set[str]:
    """Return the codes of the data-quality warnings."""
    return {finding.code for finding in trace.quality}
