"""Reader of timelines that ``perfkit export --to chrome`` wrote. It restores all rows and columns of the exported
table, and skips the events that the exporter added for viewers.

Parents, launches, steps and phases are read, not computed again. The file lacks what assembly needs for them: ids that
operators share with launches, recorded trees, names of layers, and the range that was chosen as step. They may also
come from several ranks. All cells pass the gate of :mod:`perfkit_core.trace.model.gate`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.base.algorithms.decimals import check_fits, span_ns
from perfkit_core.base.language.messages import message
from perfkit_core.errors import SourceError
from perfkit_core.exporters import CHROME_FORMAT
from perfkit_core.exporters.chrome import OF_LANE, OWN_CATEGORY, VERSION
from perfkit_core.exporters.lanes import Lane
from perfkit_core.readers.chrome.dialect import ChromeEvent, timed_events
from perfkit_core.readers.chrome.reader import ChromeFile, cut_off, mistimed, skipped, strays
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.event_columns import ROW_REFERENCES
from perfkit_core.trace.model.gate import checked_side_table
from perfkit_core.trace.model.meta import Finding, StoredFinding, TraceMeta
from perfkit_core.trace.model.side_tables import ALL, SideTables
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage.older_format import OlderFacts, without_facts

_SPANS: Final = ("X", "i")
_ARGUMENTS: Final = tuple(
    name for name in schema.COLUMN_NAMES if name not in ("name", "category", "start_ns", "dur_ns", "args", *OF_LANE)
)
_FACTS: Final = tuple(name for name, table in ALL.items() if table.describes_rows)
_WORD: Final = {int: "integer", str: "text"}
_HINT: Final = "export the run again"


class _Header(msgspec.Struct):
    version: int
    meta: TraceMeta
    quality: tuple[StoredFinding, ...]
    lanes: list[Lane]
    tables: dict[str, dict[str, list[Any]]] = {}


def read(path: Path, partial: bool = False) -> Trace:
    """Return the exported trace, with the path of the file as ``meta.source``. Raises SourceError, also if a cell
    cannot be what perfkit exported."""
    file, rows, older = ChromeFile(path, partial), _Rows(partial), SideTables()
    try:
        for batch in file.batches():
            rows.add(batch)
        header = msgspec.convert(file.header.get("perfkit"), _Header)
        base_ns = msgspec.convert(file.header.get("baseTimeNanoseconds", 0), schema.Int64)
        if header.version > VERSION:
            problem = f"{file.path}: written by a newer version of perfkit"
            raise SourceError(problem, "upgrade perfkit: pip install -U perfkit")
        cut = file.truncated_at is not None or bool(file.skipped)
        table = rows.table(header.lanes, base_ns, cut)
        tables = rows.facts(len(table)) | {
            name: checked_side_table(ALL[name], ALL[name].table(cells), None)
            for name, cells in header.tables.items()
            if name in ALL and not ALL[name].describes_rows
        }
        if header.version == 1:
            older = msgspec.convert(file.header["perfkit"]["meta"], OlderFacts).tables()
            args, tables = without_facts(table["args"])
            table = table.set_column(table.schema.get_field_index("args"), "args", args)
        events = table.select(schema.COLUMN_NAMES)
    except msgspec.ValidationError as error:
        raise SourceError(f"{file.path}: damaged perfkit header ({error})", _HINT) from None
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise SourceError(f"{file.path}: not a timeline as perfkit exports it ({error})", _HINT) from None
    meta = msgspec.structs.replace(header.meta, source=str(path), format=CHROME_FORMAT)
    findings = [*strays(file), *([mistimed(rows.mistimed)] if rows.mistimed else [])]
    if cut:
        text = skipped(file.skipped) if file.truncated_at is None else cut_off(file.truncated_at)
        meta = msgspec.structs.replace(meta, incomplete=True)
        findings.append(Finding("truncated", text))
    elif rows.missing > rows.mistimed:
        text = message("{missing} of {count} exported events are missing: another program has changed the file",
                       missing=rows.missing - rows.mistimed, count=len(events) + rows.missing)  # fmt: skip
        findings.append(Finding("exported-events-missing", text))
    quality = tuple(stored.finding() for stored in header.quality)
    try:
        return Trace(events, meta, quality, older.replaced(tables)).with_findings(*findings)
    except SourceError as error:
        raise SourceError(f"{file.path}: not a timeline as perfkit exports it ({error.message})", _HINT) from None


class _Rows:
    """The columns of the events that were read. ``mistimed`` counts events with an invalid start or duration. Such
    events are left out if ``partial`` is set; otherwise they raise SourceError. ``missing`` counts the rows of the
    exported table that were not read. Cells of the wrong type, and impossible rows and lanes, raise ValueError."""

    def __init__(self, partial: bool) -> None:
        self.mistimed = self.missing = 0
        self._partial = partial
        self._batches: list[pa.RecordBatch] = []
        self._facts: dict[str, dict[int, dict[str, Any]]] = {}  # side table → exported row → what it says
        self._row: IntArray = np.empty(0, np.int64)  # exported rows of the table

    def add(self, events: list[ChromeEvent]) -> None:
        spans = [
            event
            for event in events
            if event.ph in _SPANS and not (isinstance(event.cat, str) and event.cat.startswith(OWN_CATEGORY))
        ]
        if not spans:
            return
        timed, (start_ns, dur_ns) = timed_events(spans, self._partial)
        self.mistimed += len(spans) - len(timed)
        spans = [spans[at] for at in timed]
        args = [event.args if isinstance(event.args, dict) else {} for event in spans]
        recorded = [members.get("recorded") for members in args]
        cells = {
            "name": [event.name for event in spans],
            "category": [event.cat for event in spans],
            "args": [None if value is None else msgspec.json.encode(value).decode() for value in recorded],
            **{name: [members.get(name) for members in args] for name in _ARGUMENTS},
            "row": [members.get("row") for members in args],
            "pid": [event.pid for event in spans],
            "tid": [event.tid for event in spans],
        }
        for name in _FACTS:
            described = {members["row"]: facts for members in args if isinstance(facts := members.get(name), dict)}
            if described:
                self._facts.setdefault(name, {}).update(described)
        columns = {name: _column(name, values) for name, values in cells.items()}
        columns |= {"start_ns": pa.array(start_ns), "dur_ns": pa.array(dur_ns)}
        self._batches.append(pa.RecordBatch.from_pydict(columns))

    def table(self, lanes: list[Lane], base_ns: int, cut: bool) -> pa.Table:
        """Return the event table, with the rows in the order of the exported table. If the file is ``cut`` or rows are
        missing, references to rows that were not read become -1."""
        if not self._batches:
            return schema.SCHEMA.empty_table()
        events = pa.Table.from_batches(self._batches).unify_dictionaries().combine_chunks()
        for name in ("row", "pid", "tid"):
            if events[name].null_count:
                raise ValueError(f"an event has no {name}")
        row = events["row"].to_numpy()
        order = np.argsort(row, kind="stable")
        events, row = events.take(pa.array(order)), row[order]
        if row[0] < 0 or (row[1:] == row[:-1]).any():
            raise ValueError("the row of an event is negative, or two events have the same row")
        self.missing = int(row[-1]) + 1 - len(row)
        self._row = row
        check_fits(base_ns + time for time in span_ns(events["start_ns"].to_numpy(), events["dur_ns"].to_numpy()))
        columns = {name: events[name] for name in events.column_names}
        columns["start_ns"] = pa.array(events["start_ns"].to_numpy() + base_ns)
        for name in ROW_REFERENCES:
            references = events[name].fill_null(NO_ROW).to_numpy()
            if cut or self.mistimed or self.missing:  # row numbers of the export → rows of this table
                at = np.minimum(np.searchsorted(row, references), len(row) - 1)
                references = np.where(row[at] == references, at, np.minimum(references, NO_ROW))
            columns[name] = pa.array(references)
        # The lane determines rank, process, thread and stream. It determines the device unless the event names one.
        number = {(lane.process, lane.thread): index for index, lane in enumerate(lanes)}
        if len(number) < len(lanes):
            raise ValueError("two lanes of the header have the same numbers")
        lane_ids = np.stack([events["pid"].to_numpy(), events["tid"].to_numpy()], axis=1)
        distinct, code = np.unique(lane_ids, axis=0, return_inverse=True)
        for lane_id in map(tuple, distinct.tolist()):
            if lane_id not in number:
                raise ValueError(f"the header has no lane for the pid {lane_id[0]} and the tid {lane_id[1]}")
        index = np.array([number[process, thread] for process, thread in distinct.tolist()], np.int64)
        indices = pa.array(index[code.reshape(-1)])
        for name in OF_LANE:
            columns[name] = pa.array([getattr(lane, name) for lane in lanes], pa.int64()).take(indices)
        device = pa.array([lane.device for lane in lanes], pa.string()).take(indices)
        named = events["device"].cast(pa.string()).combine_chunks()
        columns["device"] = pa.compute.coalesce(named, device).dictionary_encode()
        return pa.table(columns)

    def facts(self, count: int) -> dict[str, pa.Table]:
        """Return the side tables that describe rows of the table, which has ``count`` rows."""
        tables = {}
        for name, facts in self._facts.items():
            rows = np.searchsorted(self._row, sorted(facts))
            cells = [facts[row] for row in sorted(facts)]
            names = ALL[name].schema.names[1:]
            columns = {column: [cell.get(column) for cell in cells] for column in names}
            tables[name] = checked_side_table(ALL[name], ALL[name].table({"row": rows, **columns}), count)
        return tables


def _column(name: str, values: list[Any]) -> pa.Array:
    """Return a column of JSON values. Raises ValueError if one is neither null nor of the column's type."""
    of_type = schema.SCHEMA.field(name).type if name in schema.COLUMN_NAMES else pa.int64()
    json_type = int if pa.types.is_integer(of_type) else str
    for kind in set(map(type, values)) - {json_type, type(None)}:
        value = next(value for value in values if type(value) is kind)
        raise ValueError(f"the {name} of an event is {str(value)[:40]!r}, which is no {_WORD[json_type]}")
    try:
        array = pa.array(values, pa.string() if json_type is str else of_type)
    except (pa.ArrowException, OverflowError):
        raise ValueError(f"the {name} of an event does not fit {of_type}") from None
    return array.dictionary_encode() if pa.types.is_dictionary(of_type) else array
