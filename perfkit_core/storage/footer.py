"""What a stored file says about itself: perfkit's metadata, JSON under the key ``perfkit`` of the Parquet footer."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from perfkit_core.errors import SourceError
from perfkit_core.model import schema
from perfkit_core.model.meta import StoredFinding, TraceMeta

KEY: Final = b"perfkit"


class Stored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the footer holds. A file of stage "recorded" holds events as a source read them, not yet assembled:
    ``rank`` and ``base_ns`` (added to all starts) are what only its end told, ``reader`` the source that completes them
    ("" where nothing is left to do). ``empty`` names the columns of nothing
    but nulls, None where that was not written down."""

    schema_version: int
    meta: TraceMeta
    quality: tuple[StoredFinding, ...]
    stage: Literal["trace", "recorded"] = "trace"
    rank: int | None = None
    base_ns: int = 0
    reader: str = ""
    empty: tuple[str, ...] | None = None

    def json(self) -> bytes:
        """As it stands in the file."""
        return msgspec.json.encode(self)


def is_ours(found: pa.Schema | pq.FileMetaData) -> bool:
    """Whether a Parquet file is one that perfkit wrote."""
    return KEY in (found.metadata or {})


def read_metadata(found: pa.Schema | pq.FileMetaData, path: Path) -> Stored:
    """perfkit's metadata of a Parquet file. Raises SourceError where it is missing or of a newer perfkit.

    Give the footer (``pyarrow.parquet.read_metadata``) where the file may be of stage "recorded": a schema lacks what
    was written at the end.
    """
    raw = (found.metadata or {}).get(KEY)
    if raw is None:
        raise SourceError(f"{path}: a Parquet file, but not written by perfkit", "give a run folder or a trace file")
    try:
        stored = msgspec.json.decode(raw, type=Stored)
    except msgspec.DecodeError as error:
        raise SourceError(f"{path}: damaged perfkit metadata ({error})", "record the run again") from None
    if stored.schema_version > schema.SCHEMA_VERSION:
        raise SourceError(f"{path}: written by a newer perfkit", "upgrade perfkit: pip install -U perfkit")
    return stored
