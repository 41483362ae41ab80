"""Read a file in two ways and compare the results: with the reference reader, and with the scanner. The scanner leaves
unusual parts to the reference reader."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from perfkit_core.errors import PerfkitError
from perfkit_core.readers.chrome import event_list
from perfkit_core.readers.load import load_one
from perfkit_core.readers.read_options import ReadOptions
from perfkit_core.readers.scanner import chunks
from perfkit_core.trace.model.trace import Trace

NEVER = 1 << 28
OTHER_FAULT = "a timestamp is not a 64-bit number"


@contextmanager
def reading(scan_from: int, chunk_bytes: int = chunks.CHUNK_BYTES, window_bytes: int = 1 << 20) -> Iterator[None]:
    """Set the file size from which files are scanned, and the sizes of the scanner's chunks and the reference reader's
    windows."""
    before = event_list.SCAN_FROM_BYTES, chunks.CHUNK_BYTES, event_list.WINDOW_BYTES
    event_list.SCAN_FROM_BYTES, chunks.CHUNK_BYTES, event_list.WINDOW_BYTES = scan_from, chunk_bytes, window_bytes  # type: ignore[misc]
    try:
        yield
    finally:
        event_list.SCAN_FROM_BYTES, chunks.CHUNK_BYTES, event_list.WINDOW_BYTES = before  # type: ignore[misc]


def both(path: Path, partial: bool = False, chunk_bytes: int = chunks.CHUNK_BYTES, window_bytes: int = 1 << 20) -> str:
    """Return the difference between the two readings, or "" if they give the same table or the same error."""
    with reading(NEVER, window_bytes=window_bytes):
        reference = _read(path, partial)
    with reading(0, chunk_bytes, window_bytes):
        scanned = _read(path, partial)
    return difference(reference, scanned)


def difference(a: Trace | str, b: Trace | str) -> str:
    """Return the first difference between two traces (in cells, metadata or data-quality warnings) or between two
    errors."""
    if isinstance(a, str) and isinstance(b, str) and (OTHER_FAULT in a) != (OTHER_FAULT in b):
        return ""  # if a file has two errors, the readers may report different ones
    if isinstance(a, str) or isinstance(b, str):
        return "" if a == b else f"{a!r:.300} is not {b!r:.300}"
    if a.meta != b.meta or a.quality != b.quality:
        return f"{a.meta} {a.quality} is not {b.meta} {b.quality}"
    for name in a.events.column_names:
        ours, theirs = _plain(a.events[name]), _plain(b.events[name])
        if not ours.equals(theirs):
            pairs = zip(ours.to_pylist(), theirs.to_pylist(), strict=False)
            return f"{name}: {len(a)} and {len(b)} rows, {next((pair for pair in pairs if pair[0] != pair[1]), '')}"
    return ""


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def _read(path: Path, partial: bool) -> Trace | str:
    try:
        return load_one(path, ReadOptions(partial))
    except PerfkitError as error:
        return f"{error.message}; {error.hint}"
