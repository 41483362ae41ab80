"""Run folders: one Parquet file for each cycle of each process, the metadata inside.

The file is plain Parquet (zstd, dictionaries): pandas, polars and duckdb open it as it is. perfkit's metadata is JSON
under the key ``perfkit`` of the schema metadata. A file appears under its name only when it is complete.
"""

from __future__ import annotations

import os
import re
import socket
import uuid
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from perfkit_core import schema
from perfkit_core.errors import SourceError
from perfkit_core.trace import Finding, Trace, TraceMeta

SUFFIX: Final = ".perfkit.parquet"
_KEY: Final = b"perfkit"
_ROW_GROUP: Final = 1 << 18


class _Stored(msgspec.Struct):
    """What the schema metadata holds."""

    schema_version: int
    meta: TraceMeta
    quality: tuple[Finding, ...]


def write_trace(trace: Trace, path: Path) -> Path:
    """Write a trace to one file, atomically: readers see all of it or nothing. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        write_table(trace, temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def write_table(trace: Trace, file: Path | BinaryIO) -> None:
    """Write a trace, with its metadata, to a path or a file that is open, as it comes. Raises OSError."""
    stored = _Stored(schema.SCHEMA_VERSION, trace.meta, trace.quality)
    table = trace.events.unify_dictionaries().replace_schema_metadata({_KEY: msgspec.json.encode(stored)})
    pq.write_table(table, file, compression="zstd", compression_level=3, row_group_size=_ROW_GROUP)


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
    """A file that :func:`write_trace` wrote. Raises SourceError for every other file."""
    try:
        table = pq.read_table(path, memory_map=True, partitioning=None)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise SourceError(f"{path}: not a readable Parquet file ({error})", "record the run again") from None
    stored = read_metadata(table.schema, path)
    return Trace(_conform(table, path), stored.meta, stored.quality)


def is_ours(found: pa.Schema) -> bool:
    """Whether a Parquet schema is one that perfkit wrote."""
    return _KEY in (found.metadata or {})


def read_metadata(found: pa.Schema, path: Path) -> _Stored:
    """perfkit's metadata of a Parquet schema. Raises SourceError where it is missing or of a newer perfkit."""
    raw = (found.metadata or {}).get(_KEY)
    if raw is None:
        raise SourceError(f"{path}: a Parquet file, but not written by perfkit", "give a run folder or a trace file")
    try:
        stored = msgspec.json.decode(raw, type=_Stored)
    except msgspec.DecodeError as error:
        raise SourceError(f"{path}: damaged perfkit metadata ({error})", "record the run again") from None
    if stored.schema_version > schema.SCHEMA_VERSION:
        raise SourceError(f"{path}: written by a newer perfkit", "upgrade perfkit: pip install -U perfkit")
    return stored


def _conform(table: pa.Table, path: Path) -> pa.Table:
    missing = [name for name in schema.COLUMN_NAMES if name not in table.column_names]
    if missing:
        raise SourceError(f"{path}: columns are missing ({', '.join(missing)})", "record the run again")
    return table.select(schema.COLUMN_NAMES).cast(schema.SCHEMA)
