"""Run folders: one Parquet file for each cycle of each process, complete as soon as it has its name. Files are plain
Parquet (zstd, dictionaries), readable by pandas, polars and duckdb. perfkit's metadata is JSON under the key
``perfkit`` of the footer. A run folder in which a cycle is missing has a mark."""

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

from perfkit_core.errors import SourceError
from perfkit_core.model import schema
from perfkit_core.model.meta import StoredFinding, TraceMeta
from perfkit_core.model.trace import Trace
from perfkit_core.storage import recorded_events, writer
from perfkit_core.storage.stored_file import KEY, Stored, read_metadata, stored_columns
from perfkit_core.system import failures, paths

SUFFIX: Final = ".perfkit.parquet"
PARTIAL_SUFFIX: Final = ".perfkit.partial"
INCOMPLETE_MARK: Final = "INCOMPLETE"
"""Name of the file in a run folder that says which cycles are missing and why."""
_ROW_GROUP: Final = 1 << 18
_BACKGROUND_WRITER: Final = "perfkit_core.recording.background"


def write_trace(trace: Trace, path: Path) -> Path:
    """Write a trace to one file, atomically. Raises OSError. A file that a store refuses is kept on this machine; the
    error gives its path."""
    with paths.replacing(path, keep=True) as temporary, temporary.open("wb") as file:
        write_table(trace, file)
    return path


def write_table(trace: Trace, file: BinaryIO) -> None:
    table = trace.events.unify_dictionaries()
    stored = Stored(
        schema_version=schema.SCHEMA_VERSION,
        meta=trace.meta,
        quality=tuple(map(StoredFinding.of, trace.quality)),
        empty=tuple(name for name in table.column_names if table[name].null_count == len(table)),
    )
    writer.write(table.replace_schema_metadata({KEY: stored.json()}), file, _ROW_GROUP, writer.encoding(table.schema))


def write_cycle(trace: Trace, run_dir: Path) -> Path:
    """Write one cycle of one process into a run folder, under a name that no other process or cycle can have."""
    return write_trace(trace, run_dir / cycle_name(trace.meta))


def cycle_name(meta: TraceMeta) -> str:
    """Return the file name of a cycle: rank and cycle for people, host and recording id for uniqueness."""
    rank = f"rank{meta.ranks[0]:05d}" if meta.ranks else "rank-"
    host = re.sub(r"[^A-Za-z0-9-]+", "-", meta.hostname or socket.gethostname())[:40]
    recording = meta.recording or new_recording()
    return f"{rank}-cycle{meta.cycle or 0:05d}-{host}-{recording}{SUFFIX}"


def new_recording() -> str:
    """Return an id that all cycles of one process share and no other process has."""
    return f"{os.getpid()}-{uuid.uuid4().hex[:12]}"


def read_stored(path: Path) -> Trace:
    """Read a file that :func:`write_trace` or a ``RecordedWriter`` wrote. Raises SourceError for any other file. Reads
    only the footer of a trace; its columns follow on demand. Recorded events are assembled immediately."""
    try:
        with paths.arrow_input(path) as file:
            footer = pq.read_metadata(file)
        stored = read_metadata(footer, path)
        if stored.stage == "trace":
            quality = tuple(finding.finding() for finding in stored.quality)
            return Trace(stored_columns(path, footer, stored.empty), stored.meta, quality)
        from perfkit_core.plugins.manager import get_plugins  # here, as the built-in plugins read stored files

        operator_names = get_plugins().operator_names(stored.meta.framework)
        return recorded_events.read_recorded(path, stored, operator_names, _complete(stored.reader, path))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise SourceError(f"{path}: not a readable Parquet file ({error})", "record the run again") from None


def _complete(reader: str, path: Path) -> recorded_events.Complete | None:
    from perfkit_core.plugins.manager import get_plugins

    if not reader:
        return None
    for source in get_plugins().sources():
        if source.name == reader and source.complete is not None:
            return source.complete
    text = f"{path}: these events need the reader {reader!r}, which no plugin provides"
    raise SourceError(text, "perfkit plugins shows what is broken or missing")


def flush(path: Path | None = None, timeout: float | None = None) -> bool:
    """Wait until the cycles taken so far are on disk: those of ``path``, below and above it, or all. ``timeout`` is in
    seconds (None: unlimited). Returns False on timeout. A process that has recorded nothing returns immediately,
    without importing the writer."""
    background = sys.modules.get(_BACKGROUND_WRITER)
    return True if background is None else bool(background.shared().flush(path, timeout))


def mark_incomplete(run_dir: Path, cycle: int, error: BaseException) -> None:
    """Record in the run folder that a cycle of this process is missing, and why. Never raises."""
    mark = run_dir / INCOMPLETE_MARK
    line = f"process {os.getpid()}, cycle {cycle}: {failures.told(error)}\n"
    try:
        if paths.is_remote(mark):  # stores cannot append
            mark.write_text((mark.read_text(encoding="utf-8") if mark.exists() else "") + line, encoding="utf-8")
            return
        mark.parent.mkdir(parents=True, exist_ok=True)
        with mark.open("a", encoding="utf-8") as file:
            file.write(line)
    except Exception as failure:  # drivers of stores have their own error classes
        failures.tell(f"{run_dir} cannot be written: {failure}", logging.DEBUG)
