"""A trace in memory: the event table, side tables, the metadata of the run, and data-quality warnings.

An event table comes from a table in memory, from other traces, or from a file. A file is read on demand, column by
column. Results that several views need are cached with the trace. They are read-only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from perfkit_core.base.algorithms import arrays
from perfkit_core.base.algorithms.arrays import BoolArray, Codes, IntArray, constant, nullable
from perfkit_core.base.language.units import counted
from perfkit_core.base.system import machine
from perfkit_core.trace.model import account, compiled_graph, frame_samples, gate, schema, side_tables, timed_steps
from perfkit_core.trace.model.account import ReadEvents
from perfkit_core.trace.model.cache import CELL_BYTES, Cache
from perfkit_core.trace.model.compiled_graph import CompiledGraph
from perfkit_core.trace.model.event_columns import (
    ROW_REFERENCES,
    ChangedColumns,
    Columns,
    JoinedColumns,
    PartColumns,
    TableColumns,
)
from perfkit_core.trace.model.frame_samples import FrameSamples
from perfkit_core.trace.model.meta import Finding, TraceMeta, joined_meta, united
from perfkit_core.trace.model.side_tables import Load, SideTables
from perfkit_core.trace.model.timed_steps import TimedSteps

_OF_COLUMN: Final = ("has_values", "ints", "codes", "rows")
"""A result that depends on one column is cached with a tuple as key: (one of these words, the column's name, …)."""


@dataclass(frozen=True, slots=True, repr=False, init=False)
class Trace:
    """Events with metadata and data-quality warnings. The events of each rank are adjacent and sorted by start. The
    columns are those of :data:`perfkit_core.trace.model.schema.SCHEMA`. A stored trace reads its file on demand:
    :meth:`ints`, :meth:`codes` and :meth:`column` read one column, ``events`` reads all.

    ``tables`` has the side tables (:data:`perfkit_core.trace.model.side_tables.ALL`)."""

    _columns: Columns
    meta: TraceMeta
    quality: tuple[Finding, ...]
    tables: SideTables
    _cache: Cache

    def __init__(
        self,
        events: pa.Table | Columns | None = None,
        meta: TraceMeta | None = None,
        quality: tuple[Finding, ...] = (),
        tables: SideTables | None = None,
        _cache: Cache | None = None,
        _columns: Columns | None = None,
    ) -> None:
        """Create a trace of ``events`` and ``meta``. An Arrow table passes the gate
        (:mod:`perfkit_core.trace.model.gate`); columns have passed it. Raises SourceError if they cannot be events.
        Only ``dataclasses.replace`` sets ``_cache`` and ``_columns``."""
        columns = _columns if events is None else events
        if columns is None or meta is None:
            raise TypeError("a Trace needs events and meta")
        if not isinstance(columns, Columns):
            meta, findings = gate.checked_meta(meta)
            columns, quality = _passed(columns, meta), tuple(dict.fromkeys(quality + findings))
        values = (columns, meta, quality, tables or SideTables(), Cache() if _cache is None else _cache)
        for name, value in zip(("_columns", "meta", "quality", "tables", "_cache"), values, strict=True):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        meta, steps = self.meta, np.unique(self.ints("step")[self.host & self.rows("kind", schema.STEP)])
        parts = [counted(len(self), "event")]
        parts += [counted(len(steps), "step")] if len(steps) else []
        parts += [" ".join(filter(None, (meta.framework, meta.framework_version)))] if meta.framework else []
        parts += [counted(len(meta.ranks), "rank")] if meta.ranks else []
        return f"<Trace {', '.join((*parts, meta.source))}>"

    def __len__(self) -> int:
        return self._columns.num_rows

    @property
    def events(self) -> pa.Table:
        """All columns as one Arrow table. The first use reads the complete file of a stored trace."""

        def table() -> pa.Table:
            if machine.is_limited() and not isinstance(self._columns, TableColumns):
                width = sum(CELL_BYTES for name in schema.COLUMN_NAMES if self.has_values(name))
                machine.require(width * len(self), "the event table")
            return self._columns.table()

        return self._cached("events", table)

    def column(self, name: str) -> pa.ChunkedArray:
        """Return one column as in ``events``. Each call reads a stored column again."""
        return self._current_columns().column(name)

    def pick(self, name: str, rows: npt.NDArray[np.integer[Any]]) -> pa.Array:
        """Return the values of a column in the given ``rows``, shape (len(rows),). A stored trace reads only the row
        groups that contain these rows."""
        return self._current_columns().pick(name, rows)

    def has_values(self, name: str) -> bool:
        """Return whether a column has a value that is not null. Columns of a stored trace are not read."""
        # a size of 1 byte: this is called for each column of each trace, too often to check the memory in use
        return self._cache.result(("has_values", name), lambda: self._columns.has_values(name), 1, "the event table")

    def magnitude(self, name: str) -> int:
        """Return the largest absolute value of an integer column, or a larger number. A stored trace takes it from
        the statistics in its file."""
        return self._columns.magnitude(name)

    def ints(self, column: str, missing: int = -1) -> IntArray:
        """Return an integer column as int64, with ``missing`` for nulls. The array is read-only and cached."""
        if not self.has_values(column):  # all empty columns share an array
            return self._cached(("ints", None, missing), lambda: _frozen(np.full(len(self), missing, np.int64)))
        return self._cached(
            ("ints", column, missing), lambda: arrays.to_int64(self._columns.chunks(column), len(self), missing)
        )

    def blocks(self, *columns: str, missing: int = -1) -> Iterator[tuple[IntArray, ...]]:
        """Yield some integer columns as in :meth:`ints`, block by block. Blocks are not cached, so that columns of a
        stored trace take little memory."""
        return arrays.aligned([self._parts(name, missing) for name in columns])

    def _parts(self, column: str, missing: int) -> Iterator[IntArray]:
        cached = self._cache.get(("ints", column, missing))
        if cached is not None:
            return iter([cached])
        if self.has_values(column):
            chunks = self._current_columns().chunks(column)
        else:
            chunks = iter(constant(None, schema.SCHEMA.field(column).type, len(self)).chunks)
        return (arrays.without_nulls(chunk, missing) for chunk in chunks)

    def codes(self, column: str) -> Codes:
        """Return a text column as codes and distinct values. The result is cached."""
        if not self.has_values(column):
            return self._cached(("codes", None), lambda: Codes(_frozen(np.full(len(self), -1, np.int32)), []), 4)
        chunks = self._columns.chunks
        return self._cached(("codes", column), lambda: Codes(*arrays.to_codes(chunks(column), len(self))), 4)

    def rows(self, column: str, *texts: str) -> BoolArray:
        """Return the mask of the rows with a text in ``texts``. The mask is read-only and cached."""
        return self._cached(("rows", column, texts), lambda: _frozen(self.codes(column).rows(*texts)), 1)

    @property
    def end_ns(self) -> IntArray:
        """End of each event, shape (rows,)."""

        def ends() -> IntArray:
            end, at = arrays.new_array(len(self)), 0
            for start, dur in self.blocks("start_ns", "dur_ns"):
                np.add(start, dur, out=end[at : at + len(start)])
                at += len(start)
            return _frozen(end)

        return self._cached("end_ns", ends)

    @property
    def host(self) -> BoolArray:
        """Mask of events on the host."""
        return self.rows("device", schema.CPU)

    @property
    def operators(self) -> BoolArray:
        """Mask of operators on the host."""
        return self.host & self.rows("kind", *schema.OPERATOR_KINDS)

    @property
    def account(self) -> tuple[ReadEvents, ...]:
        """What became of the events of the source."""
        return self._facts(side_tables.ACCOUNT, account.of_table)

    @property
    def frame_samples(self) -> dict[str, FrameSamples]:
        """Samples of Python frames by rank, "-" if it is unknown."""
        return self._facts(side_tables.FRAME_SAMPLES, frame_samples.of_table)

    @property
    def compiled_graphs(self) -> tuple[CompiledGraph, ...]:
        """The compiled graphs whose code is known."""
        return self._facts(side_tables.COMPILED_GRAPHS, compiled_graph.of_table)

    @property
    def step_clocks(self) -> dict[str, TimedSteps]:
        """Step times that were measured with a clock by rank, "-" if it is unknown."""
        return self._facts(side_tables.STEP_CLOCK, timed_steps.of_table)

    @property
    def timed_steps(self) -> TimedSteps:
        """The steps of the first rank that a clock timed."""
        timed = next((timed for _, timed in sorted(self.step_clocks.items())), TimedSteps())
        return timed.with_threads(self.meta.threads)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export ``events`` by Arrow's PyCapsule interface, so that ``polars.DataFrame(trace)`` and duckdb read it."""
        return self.events.__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> pd.DataFrame:
        """Return the event table as a DataFrame with categoricals and nullable integers."""
        nullable = {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype()}
        frame: pd.DataFrame = self.events.to_pandas(types_mapper=nullable.get)
        return frame

    def with_findings(self, *findings: Finding) -> Trace:
        """Return the trace with the findings added, without duplicates."""
        return self.with_quality(tuple(dict.fromkeys(self.quality + findings)))

    def with_quality(self, quality: tuple[Finding, ...]) -> Trace:
        """Return the trace with other findings."""
        return Trace(self._columns, self.meta, quality, self.tables, self._cache)

    def with_notes(self, *codes: str) -> Trace:
        """Return the trace in which the findings with these codes are notes, not warnings."""
        findings = (msgspec.structs.replace(f, note=f.note or f.code in codes) for f in self.quality)
        return self.with_quality(tuple(findings))

    def with_meta(self, **changes: Any) -> Trace:
        return self.replaced_meta(msgspec.structs.replace(self.meta, **changes))

    def replaced_meta(self, meta: TraceMeta) -> Trace:
        return Trace(self._columns, meta, self.quality, self.tables, self._known_without(()))

    def with_tables(self, **tables: pa.Table | Load) -> Trace:
        """Return the trace with some side tables replaced, by name."""
        return Trace(self._columns, self.meta, self.quality, self.tables.replaced(tables), self._known_without(()))

    def with_rows(self, events: pa.Table, new_row: Callable[[IntArray], IntArray]) -> Trace:
        """Return the trace with other ``events``. ``new_row`` maps rows of this trace to rows of ``events``, or to -1.
        Row references in ``events`` are rows of ``events`` already."""
        return Trace(TableColumns(events), self.meta, self.quality, self.tables.renumbered(new_row))

    def with_columns(self, **changes: pa.Array | pa.ChunkedArray) -> Trace:
        """Return the trace with some columns replaced by columns of the same type. Other columns stay cached.
        Raises ValueError for cells that cannot be."""
        changed, count = pa.table(changes), len(self)
        types = (schema.SCHEMA if name in schema.COLUMN_NAMES else changed.schema for name in changes)
        fields = pa.schema([fields.field(name) for name, fields in zip(changes, types, strict=True)])
        changed = gate.checked(changed, fields, None, 0, count)
        if len(changed) != count:
            raise ValueError(f"columns of {len(changed)} rows, but the trace has {count}")
        columns = ChangedColumns(self._columns, TableColumns(changed))
        return Trace(columns, self.meta, self.quality, self.tables, self._known_without(changes))

    def with_ints(self, **changes: IntArray) -> Trace:
        """Return the trace with integer columns replaced. Negative values become null, except in row
        references; the arrays become read-only."""
        columns = {
            name: pa.array(values) if name in ROW_REFERENCES else nullable(values) for name, values in changes.items()
        }
        changed = self.with_columns(**columns)
        changed._cache.update({("ints", name, -1): _frozen(values) for name, values in changes.items()})
        return changed

    def slice(self, start: int, count: int) -> Trace:
        """Return ``count`` events from row ``start`` on. Row references remain row numbers of the complete trace."""
        return self.with_rows(self.events.slice(start, count), _cut(start, start + count))

    def part(self, first: int, end: int) -> Trace:
        """Return the events from row ``first`` to before ``end``, with references to rows of the part. Columns are read
        on demand, except those that are cached already."""

        def cut(cached: Any) -> Any:
            if isinstance(cached, Codes):
                return Codes(cached.codes[first:end], cached.values)
            return cached[first:end] if isinstance(cached, np.ndarray) else cached

        cache = self._cache.of_columns(_OF_COLUMN, ROW_REFERENCES, cut)
        tables = self.tables.renumbered(_cut(first, end))
        return Trace(PartColumns(self._current_columns(), first, end), self.meta, self.quality, tables, cache)

    def _facts(self, name: str, convert: Callable[[pa.Table], Any]) -> Any:
        return self._cache.result(("facts", name), lambda: convert(self.tables[name]), 1, "a side table")

    def _current_columns(self) -> Columns:
        table = self._cache.get("events")
        return self._columns if table is None else TableColumns(table)

    def _known_without(self, changed: Collection[str]) -> Cache:
        cache, end_ns = self._cache.of_columns(_OF_COLUMN, changed), self._cache.get("end_ns")
        if end_ns is not None and not {"start_ns", "dur_ns"}.intersection(changed):
            cache.update({"end_ns": end_ns})
        return cache

    def _cached(self, key: Any, make: Callable[[], Any], cell_bytes: int = CELL_BYTES) -> Any:
        return self._cache.result(key, make, cell_bytes * len(self), "a column of the events")


def _frozen(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    values.setflags(write=False)
    return values


def _passed(events: pa.Table, meta: TraceMeta) -> TableColumns:
    try:
        return TableColumns(gate.checked_table(events, meta.ranks or None))
    except (pa.ArrowException, ValueError) as error:
        raise gate.refused(error) from None


def _cut(first: int, end: int) -> Callable[[IntArray], IntArray]:
    """Return a function that maps rows to rows of the part from ``first`` to before ``end``, other rows to -1."""
    return lambda rows: np.where((rows >= first) & (rows < end), rows - first, -1)


def concat_traces(traces: Sequence[Trace]) -> Trace:
    """Return the concatenation of several traces, in the order of the ranks, and of time within a rank. Row references
    are shifted. Findings are merged and name their ranks (:func:`united`).
    :func:`perfkit_core.trace.model.meta.joined_meta` joins the metadata."""
    if len(traces) == 1:
        return traces[0]
    quality = united([(trace.meta.ranks, trace.quality) for trace in traces])
    meta = joined_meta([trace.meta for trace in traces])
    first_row = np.cumsum([0, *(len(trace) for trace in traces)]).tolist()
    tables = side_tables.joined([trace.tables for trace in traces], first_row[:-1])
    return Trace(JoinedColumns([trace._columns for trace in traces]), meta, quality, tables)


def with_rank(trace: Trace, rank: int) -> Trace:
    column = constant(rank, pa.int32(), len(trace))
    return trace.with_columns(rank=column).with_meta(ranks=(rank,))
