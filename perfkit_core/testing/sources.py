"""Does a reader know its own files, leave others alone, and fail in words when a file is damaged?

Is a stored trace the same trace, and can everyone open the file?
"""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from perfkit_core.errors import SourceError
from perfkit_core.model import schema
from perfkit_core.model.meta import Finding
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import Source
from perfkit_core.readers.load import read_with
from perfkit_core.storage.bytestream import GZIP_MAGIC, head
from perfkit_core.storage.store import SUFFIX, read_stored, write_trace
from perfkit_core.testing.require import require

FOREIGN: Final = {
    "empty": b"",
    "text": b"epoch,loss\n0,0.5\n",
    "json": b'{"cells": [], "nbformat": 4}',
    "list": b"[1, 2, 3]",
    "html": b"<!DOCTYPE html><title>report</title>",
    "png": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
    "zip": b"PK\x03\x04\x14\x00\x00\x00",
    "elf": b"\x7fELF\x02\x01\x01\x00",
    "pickle": b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00",
}
"""Beginnings of files that no profiler wrote."""


def check_source(source: Source, path: Path) -> None:
    """``path`` is a sound file of the format. Raises AssertionError."""
    require(bool(source.name and source.description), "a source needs a name and a description")
    require(source.sniff(path, head(path)) >= 1, f"{source.name} does not recognise {path.name}")
    sound = frozenset(read_with(source, path).quality)
    for name, start in FOREIGN.items():
        require(
            source.sniff(Path(f"foreign-{name}"), start) == 0,
            f"{source.name} takes a foreign file ({name}) for its own",
        )
    with tempfile.TemporaryDirectory() as folder:
        for name, data in _damaged(path):
            _check_damaged(source, Path(folder) / f"{name}-{path.name}", data, sound)


def _damaged(path: Path) -> Iterator[tuple[str, bytes]]:
    data = path.read_bytes()
    yield "empty", b""
    yield "garbage", bytes(range(255, -1, -1)) * 8
    yield "json", b'{"cells": [], "nbformat": 4}'
    yield "half", data[: len(data) // 2]
    yield "overwritten", data[: len(data) // 3] + b"\x00" * 4096 + data[len(data) // 3 + 4096 :]
    if data.startswith(GZIP_MAGIC):
        inside = gzip.decompress(data)
        yield "half-inside", gzip.compress(inside[: len(inside) // 2], 1)


def _check_damaged(source: Source, path: Path, data: bytes, sound: frozenset[Finding]) -> None:
    path.write_bytes(data)
    try:
        read_with(source, path)
    except SourceError as error:
        require(str(path) in str(error), f"the message does not name the file: {error}")
        require("\n" not in str(error), f"the message has more than one line: {error!r}")
    else:
        raise AssertionError(f"{source.name} reads a damaged file ({path.name}) without a word")
    try:
        partial = read_with(source, path, True)
    except SourceError:
        return
    require(isinstance(partial, Trace), "partial reading returns a Trace")
    require(not sound.issuperset(partial.quality), f"what is missing in {path.name} is not a finding")


_INTEGERS = tuple(c.name for c in schema.COLUMNS if pa.types.is_integer(c.type))


def check_round_trip(trace: Trace, tmp_path: Path) -> None:
    """Store, read, compare; then open the Parquet file with pandas, polars and duckdb (all must be installed).

    Raises AssertionError.
    """
    path = write_trace(trace, tmp_path / f"round-trip{SUFFIX}")
    again = read_stored(path)
    require(again.meta == trace.meta, f"meta changed:\n{trace.meta}\n{again.meta}")
    require(again.quality == trace.quality, f"quality changed: {trace.quality} → {again.quality}")
    for column in schema.COLUMNS:
        same = plain(again.events, column.name).equals(plain(trace.events, column.name))
        require(same, f"column {column.name} changed")
    for reader in (_pandas, _polars, _duckdb):
        _check_columns(reader.__name__.strip("_"), reader(path), trace)


def plain(table: pa.Table, column: str) -> pa.Array:
    """A column in one chunk without its dictionary, so that equal values are equal."""
    values = table[column]
    decoded = values.cast(pa.string()) if pa.types.is_dictionary(values.type) else values
    return pa.chunked_array(decoded.chunks, decoded.type).combine_chunks()


def _check_columns(reader: str, found: pa.Table, trace: Trace) -> None:
    require(found.num_rows == len(trace), f"{reader} sees {found.num_rows} of {len(trace)} rows")
    for name in schema.COLUMN_NAMES:
        require(name in found.column_names, f"{reader} does not see the column {name}")
        nulls = (found[name].null_count, trace.events[name].null_count)
        require(nulls[0] == nulls[1], f"{reader} sees {nulls[0]} nulls in {name}, not {nulls[1]}")
    for name in _INTEGERS:
        values = found[name].cast(pa.int64()).fill_null(-1).to_numpy()
        require(np.array_equal(values, trace.ints(name)), f"{reader} reads other numbers in {name}")


def _pandas(path: Path) -> pa.Table:
    pandas = import_module("pandas")
    return pa.Table.from_pandas(pandas.read_parquet(path, dtype_backend="pyarrow"), preserve_index=False)


def _polars(path: Path) -> pa.Table:
    return import_module("polars").read_parquet(path).to_arrow()


def _duckdb(path: Path) -> pa.Table:
    with import_module("duckdb").connect() as connection:
        return connection.sql("select * from read_parquet(?)", params=[str(path)]).to_arrow_table()
