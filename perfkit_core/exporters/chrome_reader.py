"""Reader of timelines that ``perfkit export --to chrome`` wrote. It restores all rows and columns of the exported
table, and skips the events that the exporter added for viewers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from perfkit_core.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.algorithms.decimals import check_fits, span_ns
from perfkit_core.errors import SourceError
from perfkit_core.exporters import CHROME_FORMAT
from perfkit_core.exporters.chrome import OF_LANE, OWN_CATEGORY, VERSION
from perfkit_core.exporters.lanes import Lane
from perfkit_core.model import schema
from perfkit_core.model.meta import Finding, StoredFinding, TraceMeta
from perfkit_core.model.trace import Trace
from perfkit_core.readers.chrome.dialect import ChromeEvent, integer, timed_events
from perfkit_core.readers.chrome.reader import ChromeFile, cut_off, mistimed, skipped, strays

_SPANS: Final = ("X", "i")
_REFERENCES: Final = ("parent", "launched_by")
_ARGUMENTS: Final = tuple(
    c for c in schema.COLUMNS if c.name not in ("name", "category", "start_ns", "dur_ns", "args", *OF_LANE)
)


class _Header(msgspec.Struct):
    version: int
    meta: TraceMeta
    quality: tuple[StoredFinding, ...]
    lanes: list[Lane]


def read(path: Path, partial: bool = False) -> Trace:
    """Return the exported trace, with the path of the file as ``meta.source``. Raises SourceError."""
    file, rows = ChromeFile(path, partial), _Rows(partial)
    for batch in file.batches():
        rows.add(batch)
    try:
        header = msgspec.convert(file.header.get("perfkit"), _Header)
    except msgspec.ValidationError as error:
        raise SourceError(f"{file.path}: damaged perfkit header ({error})", "export the run again") from None
    if header.version > VERSION:
        problem = f"{file.path}: written by a newer version of perfkit"
        raise SourceError(problem, "upgrade perfkit: pip install -U perfkit")
    events = rows.table(header.lanes, integer(file.header.get("baseTimeNanoseconds")) or 0)
    meta = msgspec.structs.replace(header.meta, source=str(path), format=CHROME_FORMAT)
    trace = Trace(events, meta, tuple(stored.finding() for stored in header.quality)).with_findings(*strays(file))
    if rows.mistimed:
        trace = trace.with_findings(mistimed(rows.mistimed))
    if file.truncated_at is None and not file.skipped:
        return trace
    text = skipped(file.skipped) if file.truncated_at is None else cut_off(file.truncated_at)
    meta = msgspec.structs.replace(meta, incomplete=True)
    return Trace(events, meta, trace.quality).with_findings(Finding("truncated", text))


class _Rows:
    """The columns of the events that were read. ``mistimed`` counts events with an invalid start or duration. Such
    events are left out if ``partial`` is set; otherwise they raise SourceError."""

    def __init__(self, partial: bool) -> None:
        self.mistimed = 0
        self._partial = partial
        self._batches: list[pa.RecordBatch] = []
        self._row: list[IntArray] = []
        self._place: list[IntArray] = []

    def add(self, events: list[ChromeEvent]) -> None:
        kept = [
            event
            for event in events
            if event.ph in _SPANS and not (isinstance(event.cat, str) and event.cat.startswith(OWN_CATEGORY))
        ]
        if not kept:
            return
        timed, (start_ns, dur_ns) = timed_events(kept, self._partial)
        self.mistimed += len(kept) - len(timed)
        kept = [kept[at] for at in timed]
        args = [event.args if isinstance(event.args, dict) else {} for event in kept]
        recorded = [one.get("recorded") for one in args]
        encoded = [None if value is None else msgspec.json.encode(value).decode() for value in recorded]
        columns = {
            "name": _text([event.name for event in kept]),
            "category": _text([event.cat for event in kept]),
            "start_ns": pa.array(start_ns),
            "dur_ns": pa.array(dur_ns),
            "args": pa.array(encoded, pa.string()),
        }
        for column in _ARGUMENTS:
            values = [one.get(column.name) for one in args]
            text = pa.types.is_dictionary(column.type)
            columns[column.name] = _text(values) if text else pa.array([integer(v) for v in values], column.type)
        self._batches.append(pa.RecordBatch.from_pydict(columns))
        self._row.append(_integers([one.get("row") for one in args]))
        self._place.append(np.stack([_integers([e.pid for e in kept]), _integers([e.tid for e in kept])], axis=1))

    def table(self, lanes: list[Lane], base_ns: int) -> pa.Table:
        """Return the event table, with the rows in the order of the exported table."""
        if not self._batches:
            return schema.SCHEMA.empty_table()
        events = pa.Table.from_batches(self._batches).unify_dictionaries().combine_chunks()
        row = np.concatenate(self._row)
        order = np.argsort(row, kind="stable")
        events, row = events.take(pa.array(order)), row[order]
        check_fits(base_ns + time for time in span_ns(events["start_ns"].to_numpy(), events["dur_ns"].to_numpy()))
        columns = {name: events[name] for name in events.column_names}
        columns["start_ns"] = pa.array(events["start_ns"].to_numpy() + base_ns)
        for name in _REFERENCES:  # row numbers of the export → rows of this table, or -1 if not read
            wanted = events[name].fill_null(NO_ROW).to_numpy()
            at = np.minimum(np.searchsorted(row, wanted), len(row) - 1)
            columns[name] = pa.array(np.where((row[at] == wanted) & (wanted >= 0), at, NO_ROW))
        # The lane determines rank, process, thread and stream. It determines the device unless the event names one.
        number = {(lane.process, lane.thread): index for index, lane in enumerate(lanes)}
        distinct, code = np.unique(np.concatenate(self._place)[order], axis=0, return_inverse=True)
        of_distinct = np.array([number.get((p, t), -1) for p, t in distinct.tolist()], np.int64)
        index = of_distinct[code.reshape(-1)]
        indices = pa.array(index, mask=index < 0)
        for name in OF_LANE:
            columns[name] = pa.array([getattr(lane, name) for lane in lanes], pa.int64()).take(indices)
        device = pa.array([lane.device for lane in lanes], pa.string()).take(indices)
        named = events["device"].cast(pa.string()).combine_chunks()
        columns["device"] = pa.compute.coalesce(named, device).dictionary_encode()
        arrays = [columns[column.name].cast(column.type) for column in schema.COLUMNS]
        return pa.Table.from_arrays(arrays, schema=schema.SCHEMA)


def _text(values: list[Any]) -> pa.Array:
    texts = [value if isinstance(value, str) or value is None else str(value) for value in values]
    return pa.array(texts, pa.string()).dictionary_encode()


def _integers(values: list[Any]) -> IntArray:
    return np.array([NO_ROW if number is None else number for number in map(integer, values)], np.int64)
