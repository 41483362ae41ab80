"""Partials in files: what one job of a batch scheduler computed of its share of the ranks, to be merged by another.

MessagePack with the tables as Arrow streams, so that a file of unknown origin can be read; nothing in it is run.

Tables among plain data: DataFrames as Arrow streams in MessagePack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa

from perfkit_core.errors import SourceError, UsageError, unwritable
from perfkit_core.language.messages import english, message
from perfkit_core.model.meta import Finding
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.ranks.job import Job, Partial
from perfkit_core.storage.store import PARTIAL_SUFFIX
from perfkit_core.system.atomic_write import replacing
from perfkit_core.system.paths import PathLike, as_path, open_binary

_TABLE: Final = 1
"""Code of the extension."""
_OBJECTS: Final = b"perfkit.objects"
"""Key of the stream's metadata: names of the columns of texts, as JSON."""


def to_extension(value: Any) -> Any:
    """What MessagePack does not know: a DataFrame, numbers of numpy, NA. Raises NotImplementedError for all else."""
    if isinstance(value, pd.DataFrame):
        return msgspec.msgpack.Ext(_TABLE, _stream(value))
    if isinstance(value, np.generic):
        return value.item()
    if value is pd.NA:
        return None
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise NotImplementedError(f"{type(value).__name__} cannot be stored in a partial")


def from_extension(code: int, data: memoryview) -> Any:
    """The inverse. Raises ValueError for what is none."""
    if code != _TABLE:
        raise ValueError(f"unknown content {code}")
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
            found = stream.read_all()
        found.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"damaged table: {error}") from None
    return _frame(found)


def _stream(table: pd.DataFrame) -> bytes:
    objects = [str(name) for name, kind in table.dtypes.items() if kind == np.dtype(object)]
    found = pa.Table.from_pandas(table, preserve_index=False)
    found = found.replace_schema_metadata({**(found.schema.metadata or {}), _OBJECTS: msgspec.json.encode(objects)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, found.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(found)
    return bytes(sink.getvalue())


def _frame(found: pa.Table) -> pd.DataFrame:
    table: pd.DataFrame = found.to_pandas()
    for name in msgspec.json.decode((found.schema.metadata or {}).get(_OBJECTS, b"[]"), type=list[str]):
        column = table[name].astype(object)
        table[name] = column.where(column.notna(), pd.NA)
    return table


SUFFIX: Final = PARTIAL_SUFFIX
FORMAT: Final = "perfkit partial"
VERSION: Final = 5


class Stored(msgspec.Struct, frozen=True):
    """What a file holds. ``share``: (number, of) when it holds a part of the ranks; ``source``: what was named, in all
    ``ranks`` many; ``left_out``: why ranks could not be read, by their numbers among all."""

    format: str
    version: int
    source: str
    ranks: int
    share: tuple[int, int]
    job: Job
    findings: tuple[Finding, ...]
    partials: tuple[Partial, ...]
    left_out: dict[int, str]


def are_partials(sources: Sequence[PathLike]) -> bool:
    """Whether files of partials are named. Raises UsageError for some among other files."""
    named = [str(source).endswith(SUFFIX) for source in sources]
    if any(named) and not all(named):
        raise UsageError(f"partials (*{SUFFIX}) and other files cannot be mixed", "name all partials of one run")
    return all(named)


def write(stored: Stored, path: Path) -> None:
    """Write a file, all of it or nothing. Raises UsageError where that fails."""
    try:
        with replacing(path) as file:
            file.write_bytes(msgspec.msgpack.encode(stored, enc_hook=to_extension))
    except OSError as error:
        raise unwritable(path, error) from None


def read_all(sources: Sequence[PathLike], partial: bool) -> Stored:
    """The partials of several files as one. Raises SourceError for what is no such file, for files of different
    requests or profiles, and for shares that are missing (with ``partial`` a finding) or there twice."""
    stored = [_read(as_path(source)) for source in sources]
    first = stored[0]
    for one, source in zip(stored, sources, strict=True):
        if _counted(one.job) != _counted(first.job) or one.share[1] != first.share[1]:
            raise SourceError(
                f"{source} and {sources[0]} were made by different commands", "merge the shares of one command"
            )
        if (one.source, one.ranks) != (first.source, first.ranks):
            told = (
                f"{name} ({held.source}, {held.ranks} ranks)" for name, held in ((source, one), (sources[0], first))
            )
            raise SourceError(
                f"{' and '.join(told)} are of different profiles", "merge the shares of one profile, named alike by all"
            )
    missing = _missing([one.share for one in stored], partial)
    findings = (*(finding for one in stored for finding in one.findings), *missing)
    return msgspec.structs.replace(
        first,
        findings=tuple(dict.fromkeys(findings)),
        partials=tuple(p for one in stored for p in one.partials),
        left_out={number: why for one in stored for number, why in one.left_out.items()},
    )


def asked(stored: Stored, job: Job) -> Job:
    """The job to merge for: what was counted when the files were made. Raises UsageError where the job asks for
    something else, or for a view that they lack."""
    for view in job.views:
        if view not in stored.job.views:
            raise UsageError(
                f"the partials do not hold the view {view}", f"they hold {', '.join(stored.job.views)} (--view)"
            )
    made = replace(stored.job.request, sort=job.request.sort)
    if job.request not in (made, ViewRequest(sort=job.request.sort)) or job.own_steps > stored.job.own_steps:
        raise UsageError(
            "the partials were counted for other options", "leave --by, --step, --filter, … as they were, or out"
        )
    return msgspec.structs.replace(stored.job, views=job.views, request=made)


def _counted(job: Job) -> Job:
    """The job, whether it left damaged files out or had none: a share that had is one of the others."""
    return msgspec.structs.replace(job, partial=False)


def _missing(shares: Sequence[tuple[int, int]], partial: bool) -> tuple[Finding, ...]:
    numbers, of = [number for number, _ in shares], shares[0][1]
    twice = sorted({number for number in numbers if numbers.count(number) > 1})
    if twice:
        raise SourceError(f"share {twice[0]}/{of} of the ranks is named twice", "name each share once")
    absent = [f"{number}/{of}" for number in range(1, of + 1) if number not in set(numbers)]
    if not absent:
        return ()
    text = message("share {share} of the ranks is missing", share=absent[0])
    if absent[1:]:
        text = message(
            "share {share} of the ranks is missing, and {count} more", share=absent[0], count=len(absent) - 1
        )
    if not partial:
        raise SourceError(english(text), "name all shares, or --partial to do without")
    return (Finding("shares-missing", text),)


def _read(path: Path) -> Stored:
    try:
        with open_binary(path) as file:
            found = msgspec.msgpack.decode(file.read(), type=Stored, ext_hook=from_extension)
    except (msgspec.DecodeError, ValueError) as error:
        raise SourceError(f"{path}: not a file of partials ({error})", "perfkit summary --shard writes them") from None
    except OSError as error:
        raise SourceError(f"{path}: cannot be opened ({error.strerror or error})", "check the path") from None
    if found.format != FORMAT or found.version != VERSION:
        raise SourceError(f"{path}: written by another version of perfkit", "make the partials again with this one")
    return found
