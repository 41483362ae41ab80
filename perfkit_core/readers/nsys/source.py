"""Reader of the SQLite files that Nsight Systems exports (``nsys export --type sqlite``).

A file may hold the events of several processes. Each process with device work is a rank, because processes reuse the
numbers that link launches to device work. The ranks are numbered in the order of their devices.

The tables are read in batches. Streaming holds one batch in memory. No name of a host, user or file of the recorded
machine is read.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.algorithms.decimals import check_fits, span_ns
from perfkit_core.base.language.messages import message, plural
from perfkit_core.base.system.paths import is_remote
from perfkit_core.base.system.processes import shell_path
from perfkit_core.errors import SourceError
from perfkit_core.plugins.contracts import EventWriter
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.readers import join_ranks
from perfkit_core.readers.chrome.reader import negative_durations, without_start
from perfkit_core.readers.nsys import event_tables as tables
from perfkit_core.readers.sqlite_file import MAGIC, Database, may_have, opened
from perfkit_core.trace.assembly.assemble import assemble_ranks
from perfkit_core.trace.assembly.draft import RECORDED_TYPES, RecordedEvents
from perfkit_core.trace.assembly.lost_records import reported
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.account import ReadEvents
from perfkit_core.trace.model.meta import Device, Finding, TraceMeta
from perfkit_core.trace.model.trace import Trace

FORMAT: Final = "nsys"
_REPORTS: Final = (".nsys-rep", ".qdrep")
"""File name suffixes of reports, which only Nsight Systems can read."""
_NO_EVENTS: Final = ("ENUM_", "TARGET_INFO_", "META_DATA_", "ANALYSIS_", "NVTX_PAYLOAD_", "DIAGNOSTIC_EVENT")
_PROPERTIES: Final = {
    "totalMemory": "totalGlobalMem", "smCount": "numSms", "computeMajor": "computeMajor",
    "computeMinor": "computeMinor", "threadsPerWarp": "warpSize",
}  # fmt: skip
"""Column of TARGET_INFO_GPU → key in ``Device.properties``, as framework profilers name it."""
_GPUS: Final = "TARGET_INFO_GPU"
_NORMALIZED: Final = "EXPORT_PARAM_TIME_NORMALIZE"
"""Set if the times of the events were converted to times since 1970."""
_TIMES: Final = {"start", "timestamp", "rawTimestamp"}
_SCHEMA: Final = pa.schema(
    [
        pa.field(name, RECORDED_TYPES[name])
        for name in (
            "name", "kind", "category", "start_ns", "dur_ns", "rank", "pid", "tid", "device", "stream", "correlation",
            "step", "phase", "sequence", "bytes", "copy_kind", "shapes", "args",
        )
    ]
)  # fmt: skip


def sniff(path: Path, head: bytes) -> int:
    """Return how well the reader suits the file: 2 for an export, 1 for a report or another SQLite file, else 0.
    :func:`read` explains how to export a report, and refuses other SQLite files. A damaged, remote or compressed SQLite
    file counts as an export."""
    if path.name.lower().endswith(_REPORTS):
        return 1
    if not head.startswith(MAGIC):
        return 0
    return 2 if is_remote(path) or may_have(path, tables.FORMAT) else 1


def read(path: Path, partial: bool = False) -> Trace:
    """Return the Trace of a file. Raises SourceError if it is damaged, a report that was not exported, or another
    SQLite file."""
    with _opened(path, partial) as database:
        export = _Export(database)
        batches = list(export.batches())
        meta, findings, account = export.meta(), export.findings(), export.account()
        columns = pa.Table.from_batches(batches, _SCHEMA).unify_dictionaries()
    if len(columns):
        span = span_ns(columns["start_ns"].to_numpy(), columns["dur_ns"].to_numpy())
        check_fits(export.base_ns + time for time in span)
        start = pc.add(columns["start_ns"], export.base_ns)
        columns = columns.set_column(columns.column_names.index("start_ns"), "start_ns", start)
    recorded = RecordedEvents(columns).with_account(account)
    operator_names = get_plugins().framework(meta.framework).operator_names()
    return assemble_ranks(recorded, meta, findings, operator_names)


def stream(path: Path, partial: bool, writer: EventWriter) -> None:
    """Write the events to ``writer``, one batch at a time. Raises SourceError as :func:`read` does."""
    with _opened(path, partial) as database:
        export = _Export(database)
        for batch in export.batches():
            writer.write(batch)
        writer.close(export.meta(), export.findings(), base_ns=export.base_ns, account=export.account())


@contextlib.contextmanager
def _opened(path: Path, partial: bool) -> Iterator[Database]:
    if path.name.lower().endswith(_REPORTS):
        raise SourceError(
            f"{path}: a report of Nsight Systems, which only Nsight Systems can read",
            f"export it, and give the exported file: nsys export --type sqlite {shell_path(path.name)}",
        )
    with opened(path, partial, tables.FORMAT) as database:
        yield database


class _Export:
    """One pass over an export. The metadata and findings are complete after :meth:`batches`."""

    def __init__(self, database: Database) -> None:
        self._database, self._plugins = database, get_plugins()
        names = {name: framework.range_names() for name, framework in self._plugins.frameworks().items()}
        self._meanings = tables.Meanings(database, {name: meaning for name, meaning in names.items() if meaning})
        gpus = database.rows("TARGET_INFO_CUDA_DEVICE", "{pid}, {cudaId}, CAST({gpuId} AS INTEGER)")
        self._gpus = {(pid, device): gpu for pid, device, gpu in gpus}
        self._device_of: dict[tuple[int | None, int | None], int] = {}  # process and context → device
        first: dict[int, int] = {}  # process with device work → its first GPU
        for table in tables.DEVICE_TABLES:
            cells = "DISTINCT {globalPid} >> 24, {contextId}, CAST({deviceId} AS INTEGER)"
            for process, context, device in database.rows(table.name, cells, "WHERE {deviceId} IS NOT NULL"):
                self._device_of[process, context] = device
                if process is not None:
                    gpu = self._gpus.get((process & tables.LOW_BITS, device), device)
                    first[process] = min(first.get(process, gpu), gpu)
        order = sorted(first, key=lambda process: (first[process], process))
        self._ranks = {process: rank for rank, process in enumerate(order)} if len(order) > 1 else {}
        self._launcher = order[0] if len(order) == 1 else None
        self._threads: set[tuple[int, int]] = set()  # process and thread
        self._ranges = False
        self._reversed = self._graphs = self._left_out = self._untimed = 0
        self._read: Counter[str] = Counter()  # rows of each table
        self.clock, self.base_ns = self._clock()

    def batches(self) -> Iterator[pa.RecordBatch]:
        for table in tables.TABLES:
            meaning = self._meanings.of(table)
            for cells in self._database.batches(table.name, table.cells, table.where):
                try:
                    keys = zip(*(cells[name] for name in table.key), strict=True)
                    yield self._batch(table, cells, [meaning(*key) for key in keys])
                except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                    text = f"{self._database.path}: table {table.name} holds a value of the wrong type ({error})"
                    raise SourceError(text, tables.FORMAT.hint) from None

    def _batch(
        self, table: tables.EventTable, cells: dict[str, list[Any]], meanings: list[tables.Meaning]
    ) -> pa.RecordBatch:
        count = len(meanings)
        columns: dict[str, Any] = dict(zip(tables.Meaning._fields, zip(*meanings, strict=True), strict=True))
        columns["category"] = [category or table.category for category in columns["category"]]
        if table is tables.RANGES:
            domains = map(self._meanings.domain, cells["process"], cells["domain"])
            columns["args"] = [json.dumps({"domain": domain}) if domain else None for domain in domains]
        columns |= {name: cells[name] for name in ("bytes", "stream", "correlation", "args") if name in cells}
        start, end = (pa.array(cells[name], pa.int64()).to_numpy() for name in ("start", "end"))
        self._reversed += int((end < start).sum())
        columns |= {"start_ns": start, "dur_ns": np.maximum(end - start, 0)}
        process = pa.array(cells["process"], pa.int64())
        if "device" in cells:
            contexts = zip(cells["process"], cells["context"], cells["device"], strict=True)
            columns["device"] = [self._device(table, *context) for context in contexts]
        else:
            columns["device"] = [schema.CPU] * count
            columns["pid"], columns["tid"] = pc.bit_wise_and(process, tables.LOW_BITS), cells["tid"]
            self._threads.update(zip(cells["process"], cells["tid"], strict=True))
            if self._launcher is not None and "correlation" in columns:  # other processes use the same numbers
                foreign = pc.fill_null(pc.not_equal(process, self._launcher), False)
                columns["correlation"] = pc.if_else(foreign, None, pa.array(columns["correlation"], pa.int64()))
        self._graphs += count if table is tables.GRAPHS else 0
        self._ranges |= table is tables.RANGES
        columns["rank"] = [self._ranks.get(process_id) for process_id in cells["process"]]
        batch = pa.RecordBatch.from_arrays(
            [_column(columns.get(field.name), field.type, count) for field in _SCHEMA], schema=_SCHEMA
        )
        timed = batch if start.all() else batch.filter(pa.array((start != 0) | (end != 0)))
        self._read[table.name] += count
        self._untimed += count - len(timed)
        ranked = timed.filter(pc.is_valid(timed["rank"])) if self._ranks else timed
        self._left_out += len(timed) - len(ranked)
        return ranked

    def _device(self, table: tables.EventTable, process: int | None, context: int | None, number: int | None
                ) -> str | None:  # fmt: skip
        if number is None or table is tables.SYNCS:  # these state device 0 for every context
            number = self._device_of.get((process, context), number)
        return None if number is None else f"cuda:{number:d}"

    def meta(self) -> TraceMeta:
        database, matched = self._database, self._meanings.matched
        names = tables.texts_of(database, "ThreadNames", "nameId")
        threads = {}
        cells = "{globalTid} >> 24, {globalTid} & 16777215, {nameId}"
        rows = database.rows("ThreadNames", cells, "WHERE {globalTid} IS NOT NULL")
        for process, thread, name in rows:
            if (process, thread) in self._threads and name in names:
                rank = self._ranks.get(process, "-")
                threads[f"{rank}:{process & tables.LOW_BITS}:{thread}"] = names[name]
        versions = {
            key: database.value("META_DATA_EXPORT", "CAST({value} AS TEXT)", f"WHERE {{name}} = '{name}'")
            for key, name in (("version", "EXPORT_PRODUCT_VERSION"), ("schema_version", "EXPORT_SCHEMA_VERSION"))
        }
        return TraceMeta(
            source=str(database.path),
            format=FORMAT,
            framework=matched.most_common(1)[0][0] if matched else None,
            clock=self.clock,
            ranks=tuple(self._ranks.values()),
            devices=self._devices(),
            thread_names=threads,
            extra={FORMAT: {key: text for key, text in versions.items() if text is not None}},
            incomplete=bool(database.damaged),
        )

    def _clock(self) -> tuple[str, int]:
        """Return the kind of clock as in ``TraceMeta.clock``, and what to add to the times of events, in ns."""
        normalized = self._database.value(
            "META_DATA_EXPORT", "CAST({value} AS TEXT)", f"WHERE {{name}} = '{_NORMALIZED}'"
        )
        if normalized == "true":
            return "epoch", 0
        begin = self._database.value("TARGET_INFO_SESSION_START_TIME", "{utcEpochNs}")
        if not isinstance(begin, int):
            return "relative", 0
        start = self._database.value("ANALYSIS_DETAILS", "{startTime}")  # older exports count from 0
        return "epoch", begin - (start if isinstance(start, int) else 0)

    def _devices(self) -> tuple[Device, ...]:
        columns = ("id", "name", *_PROPERTIES)
        cells = ", ".join(f"CAST({{{column}}} AS {'TEXT' if column == 'name' else 'INTEGER'})" for column in columns)
        described = {row[0]: dict(zip(columns, row, strict=True)) for row in self._database.rows(_GPUS, cells)}
        devices = {}
        for number in sorted(set(self._device_of.values())):
            gpu = next((gpu for (_, device), gpu in self._gpus.items() if device == number), number)
            row = described.get(gpu)
            if row is not None:
                properties = {key: row[name] for name, key in _PROPERTIES.items() if row[name] is not None}
                devices[number] = Device(f"cuda:{number}", row["name"], row["totalMemory"], properties)
        return tuple(devices.values())

    @functools.cached_property
    def _unended(self) -> int:
        count = self._database.value(tables.RANGES.name, "COUNT(*)", f"WHERE {tables.UNENDED}")
        return count if isinstance(count, int) else 0

    def _unread(self) -> dict[str, int]:
        """Return the number of rows of each table with times that perfkit does not read."""
        read = {table.name for table in tables.TABLES}
        return self._database.unread(lambda name: name in read or name.startswith(_NO_EVENTS), _TIMES)

    def account(self) -> tuple[ReadEvents, ...]:
        """Return what became of the rows with times that are no events of the trace."""
        entries = [ReadEvents("without_rank", self._left_out), ReadEvents("without_end", self._unended)]
        entries += [ReadEvents("table_not_read", count, name) for name, count in self._unread().items()]
        for table in tables.TABLES:
            if table.name in self._database.columns:
                read = self._read[table.name] + (self._unended if table is tables.RANGES else 0)
                rows = self._database.value(table.name, "COUNT(*)")
                entries.append(ReadEvents("without_times", (rows or 0) - read, table.name))
        return tuple(entry for entry in entries if entry.count > 0)

    def findings(self) -> tuple[Finding, ...]:
        findings = self._database.findings(self._unread())
        if unended := self._unended:
            text = plural(
                "1 range had not ended when the recording stopped and is left out",
                "{n} ranges had not ended when the recording stopped and are left out",
                unended,
            )
            findings.append(Finding("unended-ranges", text))
        if not self._ranges:
            text = message(
                "no NVTX ranges were recorded, so device work belongs to no operator: record with --trace=cuda,nvtx "
                "while the framework marks its operators with NVTX ranges"
            )
            findings.append(Finding("no-ranges", text, note=True))
        if self._untimed:
            findings.append(without_start(self._untimed, self._read.total()))
        if self._reversed:
            findings.append(negative_durations(self._reversed))
        if self._left_out:
            text = message(
                "{count} host events of processes without device work are left out, because they belong to no rank",
                count=self._left_out,
            )
            findings.append(Finding("processes-left-out", text, note=True))
        if self._ranks:
            text = message(
                "the file holds {count} processes with device work: each is a rank, numbered by their devices",
                count=len(self._ranks),
            )
            findings.append(Finding(join_ranks.BY_ORDER, text, note=True))
        if self._graphs:
            text = message(
                "{count} launches of CUDA graphs were recorded without their kernels; to see these, record with "
                "--cuda-graph-trace=node",
                count=self._graphs,
            )
            findings.append(Finding("graphs-without-kernels", text, note=True))
        if self.clock == "relative":
            text = message("the file does not record the date: its times count from the start of the recording")
            findings.append(Finding("no-clock-origin", text, note=True))
        log = self._database.rows("DIAGNOSTIC_EVENT", "CAST({text} AS TEXT)")
        return (*findings, *reported(line for (line,) in log if line))


def _column(values: Any, of_type: pa.DataType, count: int) -> pa.Array:
    if values is None:
        return pa.nulls(count, of_type)
    if pa.types.is_dictionary(of_type):
        return pa.array(values, pa.string()).dictionary_encode()
    return pa.array(values, of_type)
