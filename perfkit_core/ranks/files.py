"""Files of partial results. A batch job reduces some ranks of a run (a shard) to tables, and writes them to a file.
The files of all shards are merged later.

A file contains MessagePack, with DataFrames as Arrow streams, and ends with the CRC-32 of all bytes before. Reading a
file of unknown origin executes no code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa

from perfkit_core.base.language.messages import english, message
from perfkit_core.base.system.paths import PathLike, as_path, open_binary, replacing
from perfkit_core.errors import SourceError, UsageError, unwritable
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.ranks.plan import Job, Partial
from perfkit_core.readers.read_options import DEFAULT
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.storage.checksums import crc
from perfkit_core.trace.storage.store import PARTIAL_SUFFIX

SUFFIX: Final = PARTIAL_SUFFIX
FORMAT: Final = "perfkit partial"
VERSION: Final = 9
_READABLE: Final = (8, VERSION)
_RENAMED: Final = {"told_ns": "sized_ns"}
"""Columns that files of version 8 have under another name."""
_WRITE_AGAIN: Final = "write it again with this version: perfkit summary --shard"
_TABLE: Final = 1
"""MessagePack extension code of a DataFrame."""
_CRC_BYTES: Final = 4
_OBJECTS: Final = b"perfkit.objects"
"""Metadata key of the Arrow stream. Its value is a JSON list with the names of the text columns."""


class Stored(msgspec.Struct, frozen=True):
    """Content of a file of partial results."""

    format: str
    version: int
    source: str  # The first source of the run.
    ranks: int  # The number of ranks of the whole run.
    share: tuple[int, int]  # The number of this shard, from 1, and the number of all shards.
    job: Job
    findings: tuple[Finding, ...]
    partials: tuple[Partial, ...]
    left_out: dict[int, str]  # Position of each unreadable rank → reason.


def are_partials(sources: Sequence[PathLike]) -> bool:
    """Return whether the sources are files of partial results. Raises UsageError if only some of them are."""
    named = [str(source).endswith(SUFFIX) for source in sources]
    if any(named) and not all(named):
        raise UsageError(f"partial results (*{SUFFIX}) and other files cannot be mixed", "give only partial results")
    return all(named)


def write(stored: Stored, path: Path) -> None:
    """Write a file atomically. Raises UsageError if it cannot be written."""
    try:
        with replacing(path) as file:
            content = msgspec.msgpack.encode(stored, enc_hook=to_extension)
            file.write_bytes(content + crc(content).to_bytes(_CRC_BYTES, "little"))
    except OSError as error:
        raise unwritable(path, error) from None


def to_extension(value: Any) -> Any:
    """Convert a DataFrame, numpy value or NA for MessagePack. Raises TypeError for any other value."""
    if isinstance(value, pd.DataFrame):
        objects = [str(name) for name, kind in value.dtypes.items() if kind == np.dtype(object)]
        table = pa.Table.from_pandas(value, preserve_index=False)
        meta = {**(table.schema.metadata or {}), _OBJECTS: msgspec.json.encode(objects)}
        table = table.replace_schema_metadata(meta)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table)
        return msgspec.msgpack.Ext(_TABLE, bytes(sink.getvalue()))
    if isinstance(value, np.generic):
        return value.item()
    if value is pd.NA:
        return None
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be stored in a partial result")


def from_extension(code: int, data: memoryview) -> pd.DataFrame:
    """Return the DataFrame in a MessagePack extension. Raises ValueError for unknown or damaged content."""
    if code != _TABLE:
        raise ValueError(f"unknown content {code}")
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
            table = stream.read_all()
        table.validate(full=True)
        frame: pd.DataFrame = table.to_pandas().rename(columns=_RENAMED)
    except Exception as error:  # invalid metadata of pandas raises errors of many classes
        raise ValueError(f"damaged table: {error}") from None
    # Arrow restores missing texts as None; views use NA
    for name in msgspec.json.decode((table.schema.metadata or {}).get(_OBJECTS, b"[]"), type=list[str]):
        column = frame[name].astype(object)
        frame[name] = column.where(column.notna(), pd.NA)
    return frame


def read_all(sources: Sequence[PathLike], partial: bool) -> Stored:
    """Merge several files of partial results. Raises SourceError if the files are of different commands or runs, or if
    a shard is missing or given twice. With ``partial``, a missing shard is only a data-quality warning."""
    stored = [_read(as_path(source)) for source in sources]
    first = stored[0]
    for other, source in zip(stored, sources, strict=True):
        # a shard that was written with --partial can be merged with other shards
        jobs = [
            msgspec.structs.replace(shard.job, reading=shard.job.reading.without_partial) for shard in (other, first)
        ]
        if jobs[0] != jobs[1] or other.share[1] != first.share[1]:
            raise SourceError(
                f"{source} and {sources[0]} were written by different commands", "merge the shards of one command"
            )
        if (other.source, other.ranks) != (first.source, first.ranks):
            raise SourceError(
                f"{source} ({other.source}, {other.ranks} ranks) and {sources[0]} ({first.source}, {first.ranks} "
                "ranks) are of different profiles",
                "merge shards of one profile, which were written with the same SOURCE",
            )
    findings = [finding for shard in stored for finding in shard.findings]
    numbers, of = [shard.share[0] for shard in stored], first.share[1]
    twice = sorted({number for number in numbers if numbers.count(number) > 1})
    if twice:
        raise SourceError(f"shard {twice[0]}/{of} is given twice", "give each shard once")
    absent = [f"{number}/{of}" for number in range(1, of + 1) if number not in set(numbers)]
    if absent:
        text = message("shard {shard} is missing", shard=absent[0])
        if absent[1:]:
            text = message("shard {shard} and {count} more are missing", shard=absent[0], count=len(absent) - 1)
        if not partial:
            raise SourceError(english(text), "give all shards, or add --partial to merge only the given ones")
        findings.append(Finding("shares-missing", text))
    return msgspec.structs.replace(
        first,
        findings=tuple(dict.fromkeys(findings)),
        partials=tuple(rank for shard in stored for rank in shard.partials),
        left_out={number: why for shard in stored for number, why in shard.left_out.items()},
    )


def _read(path: Path) -> Stored:
    try:
        with open_binary(path) as file:
            content = file.read()
        if crc(content[:-_CRC_BYTES]) != int.from_bytes(content[-_CRC_BYTES:], "little"):
            raise ValueError("its checksum is wrong: it is damaged, or another version of perfkit wrote it")
        stored = msgspec.msgpack.decode(content[:-_CRC_BYTES], type=Stored, ext_hook=from_extension)
    except RecursionError:
        raise SourceError(f"{path}: not a file of partial results (it is nested too deep)", _WRITE_AGAIN) from None
    except (msgspec.DecodeError, ValueError) as error:
        raise SourceError(f"{path}: not a file of partial results ({error})", _WRITE_AGAIN) from None
    except OSError as error:
        raise SourceError(f"{path}: cannot be opened ({error.strerror or error})", "check the path") from None
    if stored.format != FORMAT or stored.version not in _READABLE:
        raise SourceError(
            f"{path}: written by another version of perfkit",
            "write the partial results again with this version (--shard)",
        )
    return stored


def restricted_job(stored: Stored, job: Job) -> Job:
    """Return the stored job, but only with the views of ``job``. Raises UsageError if one of these views is not
    stored, or if ``job`` has options that differ from the stored options."""
    for view in job.views:
        if view not in stored.job.views:
            raise UsageError(
                f"the partial results lack the view {view}", f"choose from {', '.join(stored.job.views)} (--view)"
            )
    request = replace(stored.job.request, sort=job.request.sort)
    other = job.request not in (request, ViewRequest(sort=job.request.sort)) or job.own_steps > stored.job.own_steps
    if other or job.reading.without_partial not in (stored.job.reading.without_partial, DEFAULT):
        raise UsageError(
            "the partial results were written with other options",
            "give the same --by, --step, --filter, … as for the shards, or omit these options",
        )
    return msgspec.structs.replace(stored.job, views=job.views, request=request)
