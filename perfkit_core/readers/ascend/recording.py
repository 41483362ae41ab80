"""Reading of a recording of Ascend's profiler: the database, and what the text and the database have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from msgspec import structs

from perfkit_core.base.algorithms.arrays import IntArray, one_of
from perfkit_core.base.language.messages import message, plural
from perfkit_core.base.system.paths import is_remote
from perfkit_core.errors import SourceError
from perfkit_core.readers.ascend import arguments, host_calls
from perfkit_core.readers.ascend.allocations import with_memory
from perfkit_core.readers.ascend.database import FORMAT, AscendDatabase, Labels
from perfkit_core.readers.ascend.device_tasks import with_awaited_ranks, with_tasks
from perfkit_core.readers.ascend.host_calls import ENQUEUE, with_operator_details, with_queued_work
from perfkit_core.readers.ascend.rank_folder import RankFolder, groups, versions, world_size
from perfkit_core.readers.sqlite_file import MAGIC, may_have, opened
from perfkit_core.trace.assembly.assemble import OperatorNames, assemble
from perfkit_core.trace.assembly.draft import RecordedEvents
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.account import with_left_out
from perfkit_core.trace.model.meta import WORK_MISSING, Finding, TraceMeta
from perfkit_core.trace.model.trace import Trace

PROCESSES: Final = frozenset({"Ascend Hardware", host_calls.PROCESS})
"""Names of processes in the text, at least one of which each recording has."""
SETTINGS: Final = "ascend"
"""Key of ``TraceMeta.extra``: the level of the recording, and versions of the software."""
_SECOND: Final = "second_record"
"""What became of records that describe a task for the second time."""
_NAMES: Final = ("ascend_*profiler*.db", "ascend_*profiler*.db.gz", "analysis.db")


def sniff(path: Path, head: bytes) -> int:
    """Return how well the reader suits a file: 3 for a database with a name of the profiler's, 2 for another database
    with its tables, else 0."""
    if not head.startswith(MAGIC):
        return 0
    if any(fnmatch(path.name, pattern) for pattern in _NAMES):
        return 3
    return 2 if not is_remote(path) and may_have(path, FORMAT, if_unreadable=False) else 0


def read_database(
    path: Path,
    partial: bool,
    framework: str,
    labels: Labels,
    copy_kind: Callable[[str], str | None],
    operator_names: OperatorNames,
) -> Trace:
    """Return the Trace of a database. Raises SourceError if it is damaged, in use, or has other tables."""
    folder = RankFolder.around(path, partial)
    with opened(path, partial, FORMAT) as file:
        try:
            database = AscendDatabase(file, labels)
            recorded = RecordedEvents(database.events())
            details, allocations = database.details(), database.allocations()
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise SourceError(f"{path}: a table holds a value of the wrong type ({error})", FORMAT.hint) from None
        meta = TraceMeta(
            source=str(path), format="ascend-db", framework=framework, devices=database.devices(),
            incomplete=bool(file.damaged),
        )  # fmt: skip
        rank, metadata = database.rank(), database.metadata
        recorded = recorded.with_account(database.account())
        findings = database.findings()
    if folder is not None and rank is not None:
        findings += contradictions({"RANK_DEVICE_MAP": rank, **folder.ranks})
    meta = described(meta, folder, metadata, rank)
    tables = VendorTables(details, allocations, metadata)
    recorded, meta, more = completed(recorded, meta, tables, copy_kind)
    more += (*(folder.findings() if folder else ()),)
    return assemble(recorded, meta, findings + more, next(iter(meta.ranks), None), operator_names)


def contradictions(ranks: Mapping[str, int]) -> tuple[Finding, ...]:
    """Report that sources of the rank, of which the first is taken, have different ranks."""
    if len(set(ranks.values())) < 2:
        return ()
    text = message(
        "the rank of this process is not clear: {ranks:list}; the first one is taken",
        ranks=[f"{rank} ({source})" for source, rank in ranks.items()],
    )
    return (Finding("ranks-contradict", text),)


def described(
    meta: TraceMeta, folder: RankFolder | None, stated: Mapping[str, Any] | None = None, rank: int | None = None
) -> TraceMeta:
    """Return the metadata with what the folder of the rank says. ``rank`` and ``stated`` are from the recording."""
    stated = {**(stated or {}), **(folder.metadata if folder else {})}
    settings = {**versions(stated), **(folder.settings if folder else {})}
    rank = folder.rank if rank is None and folder else rank
    ranks = meta.ranks or (() if rank is None else (rank,))
    return structs.replace(
        meta,
        ranks=ranks,
        world_size=world_size(stated) if meta.world_size is None else meta.world_size,
        options={**meta.options, **(folder.options if folder else {})},
        extra={**meta.extra, SETTINGS: settings} if settings else meta.extra,
    )


@dataclass(frozen=True, slots=True)
class VendorTables:
    """The vendor's tables of kernels and of allocations, and what the program states about the recording."""

    kernels: pa.Table | None = None
    allocations: pa.Table | None = None
    stated: Mapping[str, Any] = field(default_factory=dict)
    complete: bool = True
    """Whether kernels without a row in the table of kernels are unusual."""

    @classmethod
    def of_folder(cls, folder: RankFolder | None) -> VendorTables:
        return cls(folder.kernels, folder.allocations, folder.metadata) if folder else cls(complete=False)


def completed(
    recorded: RecordedEvents, meta: TraceMeta, tables: VendorTables, copy_kind: Callable[[str], str | None],
    sums: IntArray | None = None,
) -> tuple[RecordedEvents, TraceMeta, tuple[Finding, ...]]:  # fmt: skip
    """Return the events of a recording with calls, tasks and memory events, the metadata with the number of ranks that
    collectives name if the program does not state it, and findings. The rows ``sums`` are left out."""
    recorded = with_queued_work(arguments.understood(host_calls.with_calls(recorded, meta.process_names)))
    recorded, second, unmatched, undescribed = with_tasks(recorded, tables.kernels, copy_kind, sums)
    groups_ = [ranks for _, ranks in groups(tables.stated).values()]
    recorded, named = with_awaited_ranks(recorded, next(iter(meta.ranks), None), groups_)
    meta = structs.replace(meta, world_size=meta.world_size or named)
    recorded, unplaced = with_memory(with_operator_details(recorded), tables.allocations)
    recorded = recorded.with_account(with_left_out((), _SECOND, second))
    findings = []
    if unmatched or unplaced:
        text = message(
            "rows of the vendor's tables match no event: {kernels} of kernels, {allocations} of allocations",
            kernels=unmatched,
            allocations=unplaced,
        )
        findings.append(Finding("rows-without-events", text))
    if undescribed and tables.complete:
        text = plural(
            "1 kernel has no row in the vendor's table of kernels: its type and shapes are unknown",
            "{n} kernels have no row in the vendor's table of kernels: their types and shapes are unknown",
            undescribed,
        )
        findings.append(Finding("kernels-without-rows", text))
    if tables.complete and meta.options.get("profile_memory") and not tables.allocations:
        text = message(
            "allocations were recorded (profile_memory), but their table is missing or empty: operator_memory.csv, or "
            "OP_MEMORY in the database"
        )
        findings.append(Finding("allocations-missing", text))
    columns = recorded.columns
    if one_of(columns["category"], ENQUEUE).any() and not one_of(columns["kind"], *schema.DEVICE_WORK).any():
        text = message(
            "the program launched work on the device, but the profiler did not record it: the times of operators "
            "contain waits for the device"
        )
        findings.append(Finding(WORK_MISSING, text))
    if not second:
        return recorded, meta, (*findings,)
    text = plural(
        "1 record describes a task of a collective for the second time, and was joined to the first",
        "{n} records describe tasks of collectives for the second time, and were joined to the first",
        second,
    )
    return recorded, meta, (*findings, Finding("second-records", text, note=True))
