"""Reads the timelines that ``perfkit export --to chrome`` writes: every row as it was exported.

Nothing is worked out again: parents, launches, steps and phases are those of the exported table. What the exporter
added for viewers (arrows, curves, marks) is skipped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from perfkit_core.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.algorithms.decimals import check_fits, span_ns
from perfkit_core.errors import SourceError
from perfkit_core.exporters.chrome import VERSION
from perfkit_core.exporters.chrome_extras import OWN_CATEGORY
from perfkit_core.exporters.chrome_mark import FORMAT
from perfkit_core.exporters.lanes import Lane
from perfkit_core.model import schema
from perfkit_core.model.meta import Finding, StoredFinding, TraceMeta
from perfkit_core.model.trace import Trace
from perfkit_core.readers.chrome.dialect import ChromeEvent, event_times, integer, is_timed
from perfkit_core.readers.chrome.reader import ChromeFile, cut_off, mistimed, skipped, strays

_SPANS: Final = ("X", "i")
_REFERENCES: Final = ("parent", "launched_by")
_ARGUMENTS: Final = tuple(
    c for c in schema.COLUMNS
    if c.name not in ("name", "category", "start_ns", "dur_ns", "rank", "pid", "tid", "stream", "args")
)  # fmt: skip


class _Own(msgspec.Struct):
    """The member ``perfkit`` of the header."""

    version: int
    meta: TraceMeta
    quality: tuple[StoredFinding, ...]
    lanes: list[Lane]


def read(path: Path, partial: bool = False) -> Trace:
    """The exported trace; ``meta.source`` is the file. Raises SourceError."""
    file, rows = ChromeFile(path, partial), _Rows(partial)
    for batch in file.batches():
        rows.add(batch)
    own = _own(file)
    events = rows.table(own.lanes, integer(file.header.get("baseTimeNanoseconds")) or 0)
    meta = msgspec.structs.replace(own.meta, source=str(path), format=FORMAT)
    trace = Trace(events, meta, tuple(one.finding() for one in own.quality)).with_findings(*strays(file))
    if rows.mistimed:
        trace = trace.with_findings(mistimed(rows.mistimed))
    if file.truncated_at is None and not file.skipped:
        return trace
    text = skipped(file.skipped) if file.truncated_at is None else cut_off(file.truncated_at)
    meta = msgspec.structs.replace(meta, incomplete=True)
    return Trace(events, meta, trace.quality).with_findings(Finding("truncated", text))


def _own(file: ChromeFile) -> _Own:
    try:
        own = msgspec.convert(file.header.get("perfkit"), _Own)
    except msgspec.ValidationError as error:
        raise SourceError(f"{file.path}: damaged perfkit header ({error})", "export the run again") from None
    if own.version > VERSION:
        raise SourceError(f"{file.path}: written by a newer perfkit", "upgrade perfkit: pip install -U perfkit")
    return own


class _Rows:
    """Columns of the events as they are read; ``mistimed`` counts those with a start or duration that is no time: they
    are left out with ``partial``, and raise SourceError without it."""

    def __init__(self, partial: bool) -> None:
        self.mistimed = 0
        self._partial = partial
        self._batches: list[pa.RecordBatch] = []
        self._row: list[IntArray] = []
        self._place: list[IntArray] = []

    def add(self, events: list[ChromeEvent]) -> None:
        """Take the events that are rows of the table."""
        kept = [event for event in events if event.ph in _SPANS and not _added(event)]
        if not kept:
            return
        try:
            start_ns, dur_ns = event_times(kept)
        except SourceError:
            if not self._partial:
                raise
            self.mistimed += len(kept)
            kept = [event for event in kept if is_timed(event, event_times)]
            self.mistimed -= len(kept)
            start_ns, dur_ns = event_times(kept)
        args = [event.args if isinstance(event.args, dict) else {} for event in kept]
        columns = {
            "name": _text([event.name for event in kept]),
            "category": _text([event.cat for event in kept]),
            "start_ns": pa.array(start_ns),
            "dur_ns": pa.array(dur_ns),
            "args": pa.array([_json(one.get("recorded")) for one in args], pa.string()),
        }
        for column in _ARGUMENTS:
            values = [one.get(column.name) for one in args]
            text = pa.types.is_dictionary(column.type)
            columns[column.name] = _text(values) if text else pa.array([integer(v) for v in values], column.type)
        self._batches.append(pa.RecordBatch.from_pydict(columns))
        self._row.append(_integers([one.get("row") for one in args]))
        self._place.append(np.stack([_integers([e.pid for e in kept]), _integers([e.tid for e in kept])], axis=1))

    def table(self, lanes: list[Lane], base_ns: int) -> pa.Table:
        """The event table, in the order in which it was exported."""
        if not self._batches:
            return schema.SCHEMA.empty_table()
        found = pa.Table.from_batches(self._batches).unify_dictionaries().combine_chunks()
        row = np.concatenate(self._row)
        order = np.argsort(row, kind="stable")
        found, row = found.take(pa.array(order)), row[order]
        check_fits(base_ns + time for time in span_ns(found["start_ns"].to_numpy(), found["dur_ns"].to_numpy()))
        columns = {name: found[name] for name in found.column_names}
        columns["start_ns"] = pa.array(found["start_ns"].to_numpy() + base_ns)
        for name in _REFERENCES:
            columns[name] = _positions(row, found[name].fill_null(NO_ROW).to_numpy())
        columns |= _of_lanes(lanes, np.concatenate(self._place)[order], found["device"])
        arrays = [columns[column.name].cast(column.type) for column in schema.COLUMNS]
        return pa.Table.from_arrays(arrays, schema=schema.SCHEMA)


def _added(event: ChromeEvent) -> bool:
    return isinstance(event.cat, str) and event.cat.startswith(OWN_CATEGORY)


def _text(values: list[Any]) -> pa.Array:
    texts = [value if isinstance(value, str) or value is None else str(value) for value in values]
    return pa.array(texts, pa.string()).dictionary_encode()


def _json(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _integers(values: list[Any]) -> IntArray:
    found = (integer(value) for value in values)
    return np.array([NO_ROW if value is None else value for value in found], np.int64)


def _positions(row: IntArray, wanted: IntArray) -> pa.Array:
    """Where the rows with these numbers stand now; -1 for those that are not in the file."""
    at = np.minimum(np.searchsorted(row, wanted), len(row) - 1)
    return pa.array(np.where((row[at] == wanted) & (wanted >= 0), at, NO_ROW))


def _of_lanes(lanes: list[Lane], place: IntArray, device: pa.ChunkedArray) -> dict[str, Any]:
    """The columns that a lane tells about its events; a device that an event names itself stays."""
    number = {(lane.process, lane.thread): index for index, lane in enumerate(lanes)}
    distinct, code = np.unique(place, axis=0, return_inverse=True)
    of_distinct = np.array([number.get((p, t), -1) for p, t in distinct.tolist()], np.int64)
    lane = of_distinct[code.reshape(-1)]
    indices = pa.array(lane, mask=lane < 0)
    told = {name: pa.array([getattr(one, name) for one in lanes], pa.int64()).take(indices)
            for name in ("rank", "pid", "tid", "stream")}  # fmt: skip
    place_device = pa.array([one.device for one in lanes], pa.string()).take(indices)
    own = device.cast(pa.string()).combine_chunks()
    return told | {"device": pa.compute.coalesce(own, place_device).dictionary_encode()}
