"""Run folders: one Parquet file for each cycle of each process, the metadata inside.

The file is plain Parquet (zstd, dictionaries): pandas, polars and duckdb open it as it is. perfkit's metadata is JSON
under the key ``perfkit`` of its footer. A file appears under its name only when it is complete."""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
import uuid
from pathlib import Path
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from perfkit_core.assembly.assemble import OperatorNames
from perfkit_core.errors import SourceError
from perfkit_core.model import schema
from perfkit_core.model.meta import StoredFinding, TraceMeta
from perfkit_core.model.trace import Trace
from perfkit_core.storage import writer
from perfkit_core.storage.recorded_events import Complete, RecordedWriter, read_recorded
from perfkit_core.storage.stored_file import KEY, Stored, is_ours, read_metadata, stored_columns
from perfkit_core.storage.writer import encoding
from perfkit_core.system import failures
from perfkit_core.system.paths import arrow_input, is_remote, replacing

SUFFIX: Final = ".perfkit.parquet"
PARTIAL_SUFFIX: Final = ".perfkit.partial"
"""How the names of files with partials of many ranks end."""
_ROW_GROUP: Final = 1 << 18

__all__ = [
    "SUFFIX",
    "RecordedWriter",
    "cycle_name",
    "is_ours",
    "new_recording",
    "read_metadata",
    "read_stored",
    "write_cycle",
    "write_table",
    "write_trace",
]


def write_trace(trace: Trace, path: Path) -> Path:
    """Write a trace to one file, atomically: readers see all of it or nothing. Raises OSError.

    What a store does not take stays on this machine; the error says where.
    """
    with replacing(path, keep=True) as temporary, temporary.open("wb") as file:
        write_table(trace, file)
    return path


def write_table(trace: Trace, file: BinaryIO) -> None:
    """Write a trace, with its metadata, to a file that is open, as it comes. Raises OSError."""
    table = trace.events.unify_dictionaries()
    empty = tuple(name for name in table.column_names if table[name].null_count == len(table))
    stored = Stored(
        schema_version=schema.SCHEMA_VERSION,
        meta=trace.meta,
        quality=tuple(map(StoredFinding.of, trace.quality)),
        empty=empty,
    )
    writer.write(table.replace_schema_metadata({KEY: stored.json()}), file, _ROW_GROUP, encoding(table.schema))


def write_cycle(trace: Trace, run_dir: Path) -> Path:
    """Write one cycle of one process into a run folder, under a name that no other process or cycle can have."""
    return write_trace(trace, run_dir / cycle_name(trace.meta))


def cycle_name(meta: TraceMeta) -> str:
    """File name of a cycle: rank and cycle for people, host and recording id for uniqueness."""
    rank = f"rank{meta.ranks[0]:05d}" if meta.ranks else "rank-"
    host = re.sub(r"[^A-Za-z0-9-]+", "-", meta.hostname or socket.gethostname())[:40]
    recording = meta.recording or new_recording()
    return f"{rank}-cycle{meta.cycle or 0:05d}-{host}-{recording}{SUFFIX}"


def new_recording() -> str:
    """An id that all cycles of one process share and no other process has."""
    return f"{os.getpid()}-{uuid.uuid4().hex[:12]}"


def read_stored(path: Path) -> Trace:
    """A file that :func:`write_trace` or a :class:`RecordedWriter` wrote. Raises SourceError for every other file.

    Reads the footer; the columns of a trace are read when they are asked for. Recorded events are assembled at once.
    """
    try:
        with arrow_input(path) as file:
            found = pq.read_metadata(file)
        stored = read_metadata(found, path)
        if stored.stage == "trace":
            return Trace(
                stored_columns(path, found, stored.empty), stored.meta, tuple(one.finding() for one in stored.quality)
            )
        return read_recorded(path, stored, _operator_names(stored.meta), _complete(stored.reader, path))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise SourceError(f"{path}: not a readable Parquet file ({error})", "record the run again") from None


def _operator_names(meta: TraceMeta) -> OperatorNames | None:
    from perfkit_core.plugins.manager import get_plugins  # the built-in plugins read stored files

    return get_plugins().operator_names(meta.framework)


def _complete(reader: str, path: Path) -> Complete | None:
    """What a source does with events that it streamed. Raises SourceError where the source is not installed."""
    from perfkit_core.plugins.manager import get_plugins

    if not reader:
        return None
    for source in get_plugins().sources():
        if source.name == reader and source.complete is not None:
            return source.complete
    text = f"{path}: only the reader {reader!r} can complete these events, and no plugin offers it"
    raise SourceError(text, "perfkit plugins says what is broken or missing")


_WRITER = "perfkit_core.recording.background"


def flush(path: Path | None = None, timeout: float | None = None) -> bool:
    """Wait until the cycles taken so far are on disk: those of ``path``, below it and above it, all when None.

    ``timeout`` in seconds, None: as long as it takes. False when it ran out. A process that has recorded nothing
    returns at once.
    """
    writer = sys.modules.get(_WRITER)
    return True if writer is None else bool(writer.shared().flush(path, timeout))


INCOMPLETE_MARK: Final = "INCOMPLETE"
"""A file of this name in a run folder says that at least one cycle is missing; its text says which and why."""


def mark_incomplete(run_dir: Path, cycle: int, error: BaseException) -> None:
    """Say in the run folder that a cycle of this process is missing, and why. Never raises."""
    line = f"process {os.getpid()}, cycle {cycle}: {failures.told(error)}\n"
    try:
        _append(run_dir / INCOMPLETE_MARK, line)
    except Exception as failure:  # the drivers of stores have errors of their own
        failures.tell(f"{run_dir} cannot be written: {failure}", logging.DEBUG)


def _append(file: Path, line: str) -> None:
    """Object stores cannot append."""
    if is_remote(file):
        file.write_text((file.read_text(encoding="utf-8") if file.exists() else "") + line, encoding="utf-8")
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as opened:
        opened.write(line)
