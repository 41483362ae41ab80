"""Parquet files of recorded events, without the parents, launches and steps that ``read_stored`` computes later. A file
is written while its source is read, so the source may be larger than the memory. The rows are in the order of the
source. The footer holds metadata that is known only at the end, such as the rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from perfkit_core.base.algorithms import arrays, decimals
from perfkit_core.base.system.paths import readable
from perfkit_core.trace.assembly.assemble import OperatorNames, assemble, assemble_ranks
from perfkit_core.trace.assembly.draft import CALLER, FRAME, RecordedEvents
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.account import ReadEvents, to_table
from perfkit_core.trace.model.meta import Finding, StoredFinding, TraceMeta
from perfkit_core.trace.model.sharing import shareable, shareable_finding
from perfkit_core.trace.model.side_tables import ACCOUNT, SideTables
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage import older_format, stored_file
from perfkit_core.trace.storage.stored_file import KEY, Stored, StoredFile, unreadable
from perfkit_core.trace.storage.writer import encoding, seal

Complete = Callable[[RecordedEvents, TraceMeta], tuple[RecordedEvents, TraceMeta, tuple[Finding, ...]]]
"""The function ``complete`` of a reader. When a recorded file is loaded, it adds values that depend on all events."""
_ASSEMBLED_COLUMNS: Final = frozenset({"self_ns", "launched_by", "parent", "op_name"})
_REQUIRED: Final = ("name", "kind", "start_ns", "dur_ns", "device")
SCHEMA: Final = pa.schema(
    [pa.field(c.name, c.type, c.name not in _REQUIRED) for c in schema.COLUMNS if c.name not in _ASSEMBLED_COLUMNS]
    + [pa.field("external", pa.int64()), pa.field("layer", schema.SCHEMA.field("name").type)]
    + [pa.field(FRAME, pa.int64()), pa.field(CALLER, pa.int64())]
    + [pa.field("parent", pa.int64()), pa.field("node", pa.int64()), pa.field("offset_ns", pa.int64())]
)
"""Columns of a recorded file. Three of them are special:

- ``node``: number of the event in the source's tree; null in all rows if the source does not number its events
- ``parent``: the parent's ``node``, or its row if there are no such numbers; null in all rows if there is no tree
- ``offset_ns``: time on another, finer clock of the source"""
_NEWER: Final = frozenset({"rank", FRAME, CALLER})
"""Columns that older files lack."""
ROW_GROUP: Final = 1 << 14
_PAGE_BYTES: Final = 1 << 16


class RecordedWriter:
    """Writes recorded events in batches. It holds two row groups in memory: a thread encodes one while the next is
    filled. The context manager removes the file if the block fails or does not call :meth:`close`."""

    def __init__(self, path: Path, reader: str = "", keep_host: bool = True) -> None:
        """Create the file, or raise OSError. ``read_stored`` calls ``complete`` of the reader that ``reader`` names.
        Without ``keep_host``, the metadata is that of an exported file
        (:func:`perfkit_core.trace.model.sharing.shareable`)."""
        self.path = path
        self.reader = reader
        self._keep_host = keep_host
        self.rows = 0
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._span_ns: tuple[int, ...] = ()
        self._file = pq.ParquetWriter(path, SCHEMA, data_page_size=_PAGE_BYTES, **encoding(SCHEMA))
        self._closed = False
        self._thread = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Write events. The batch has columns of :data:`SCHEMA` in any order; missing columns become null. Dictionaries
        may differ between batches. Raises OSError."""
        self.rows += batch.num_rows
        if batch.num_rows:
            times = self._span_ns + decimals.span_ns(batch["start_ns"].to_numpy(), batch["dur_ns"].to_numpy())
            self._span_ns = min(times), max(times)
        while batch.num_rows:
            part = batch.slice(0, ROW_GROUP - self._pending_rows)
            columns = [_column(part, field) for field in SCHEMA]
            self._pending.append(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
            self._pending_rows += part.num_rows
            batch = batch.slice(part.num_rows)
            if self._pending_rows == ROW_GROUP:
                self._flush()

    def close(
        self,
        meta: TraceMeta,
        quality: tuple[Finding, ...] = (),
        rank: int | None = None,
        base_ns: int = 0,
        account: Sequence[ReadEvents] = (),
    ) -> None:
        """Complete the file. ``base_ns`` is added to every start when the file is read. ``account`` has the events that
        were not written. Raises OSError. Raises SourceError if, after ``base_ns`` is added, a start or an end does not
        fit in 64 bits."""
        decimals.check_fits(base_ns + time for time in self._span_ns)
        self._flush()
        self._wait()
        if not self._keep_host:
            meta, quality = shareable(meta), tuple(map(shareable_finding, quality))
        stored = Stored(
            schema_version=schema.SCHEMA_VERSION,
            meta=msgspec.structs.replace(meta, source=readable(meta.source)),
            quality=tuple(map(StoredFinding.of, quality)),
            stage="recorded",
            rank=rank,
            base_ns=base_ns,
            reader=self.reader,
            checksums=True,
        )
        self._file.add_key_value_metadata({KEY: stored.json()})
        self._file.close()
        seal(self.path, stored_file.encoded(SideTables({ACCOUNT: to_table(account)})))
        self._thread.shutdown()
        self._closed = True

    def __enter__(self) -> RecordedWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._closed:
            self._closed = True
            self._thread.shutdown()
            self._file.close()
            self.path.unlink(missing_ok=True)

    def _flush(self) -> None:
        self._wait()
        if self._pending:
            self._writing = self._thread.submit(self._encode, self._pending)
        self._pending, self._pending_rows = [], 0

    def _wait(self) -> None:
        if self._writing is not None:
            self._writing.result()
            self._writing = None

    def _encode(self, batches: list[pa.RecordBatch]) -> None:
        table = pa.Table.from_batches(batches).unify_dictionaries()
        self._file.write_table(table, row_group_size=ROW_GROUP)


def read_recorded(file: StoredFile, operator_names: OperatorNames | None, complete: Complete | None = None) -> Trace:
    """Assemble the events of a recorded file into a Trace. If given, ``complete`` first adds values to the events.
    Raises SourceError if the file is damaged or columns are missing."""
    path, stored = file.path, file.stored
    fields = pa.schema([field for field in SCHEMA if field.name in file.position or field.name not in _NEWER])
    table = file.with_content().read(range(file.footer.num_row_groups), fields).unify_dictionaries()
    if len(stored.meta.ranks) > 1 and ("rank" not in table.column_names or table["rank"].null_count):
        raise unreadable(path, "events of several ranks have no rank")
    if stored.base_ns:
        start = pc.add_checked(table["start_ns"], pa.scalar(stored.base_ns, pa.int64()))
        table = table.set_column(table.schema.get_field_index("start_ns"), table.schema.field("start_ns"), start)
    args, _ = older_format.without_facts(table["args"]) if stored.schema_version == 1 else (table["args"], None)
    table = table.set_column(table.schema.get_field_index("args"), table.schema.field("args"), args)
    tables = stored_file.tables(file)
    recorded = RecordedEvents(table.drop_columns(["parent", "node"]), _parents(table), tables)
    meta, quality = stored.meta, tuple(finding.finding() for finding in stored.quality)
    if complete is not None:
        recorded, meta, findings = complete(recorded, meta)
        quality += findings
    if stored.rank is None:
        return assemble_ranks(recorded, meta, quality, operator_names)
    return assemble(recorded, meta, quality, stored.rank, operator_names)


def _parents(table: pa.Table) -> arrays.IntArray | None:
    """Return the row of each row's parent, or NO_ROW if no parent precedes the row. Return None if there is no tree.
    Raises ValueError for a row that does not exist."""
    parent, node = (
        arrays.to_int64(column.chunks, len(column), arrays.NO_ROW) if column.null_count < len(column) else None
        for column in (table["parent"], table["node"])
    )
    if parent is None:
        return None
    if node is None:
        if parent.min() < arrays.NO_ROW or parent.max() >= len(parent):
            raise ValueError("the column parent refers to a row that does not exist")
        return parent
    # ``parent`` contains values of ``node``. Look up the first row with each value.
    rows = np.flatnonzero(node != arrays.NO_ROW)
    if not len(rows):
        return arrays.filled(len(parent), arrays.NO_ROW)
    rows = rows[np.argsort(node[rows], kind="stable")]
    at = rows[np.minimum(np.searchsorted(node[rows], parent), len(rows) - 1)]
    return np.where((node[at] == parent) & (parent != arrays.NO_ROW) & (at < np.arange(len(node))), at, arrays.NO_ROW)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    at = batch.schema.get_field_index(field.name)
    if at < 0:
        return pa.nulls(batch.num_rows, field.type)
    values = batch.column(at)
    if pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(values.type):
        values = values.cast(pa.string()).dictionary_encode()
    return values if values.type == field.type else values.cast(field.type)
