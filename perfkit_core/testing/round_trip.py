"""Is a stored trace the same trace, and can everyone open the file?"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow as pa

from perfkit_core import schema
from perfkit_core.storage.store import SUFFIX, read_stored, write_trace
from perfkit_core.testing.require import require
from perfkit_core.trace import Trace

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
