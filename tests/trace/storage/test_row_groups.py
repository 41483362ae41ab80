"""Tests that row groups encoded in parallel give the same file as Arrow's writer, byte for byte, for any table. Only
perfkit's files have checksums before the footer."""

from __future__ import annotations

import io
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from perfkit_core.readers.load import load
from perfkit_core.trace.storage import checksums, writer
from perfkit_core.trace.storage.writer import encoding, relocated
from tests.support.small_trace import small_trace

MARK = {b"perfkit": b'{"a": 1}'}
OWN = "tests/data/torch-mlp.json.gz"


def by_us(table: pa.Table, rows: int, options: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    writer.write(table, out, rows, options)
    return out.getvalue()


def by_arrow(table: pa.Table, rows: int, options: dict[str, Any]) -> bytes:
    """Return the file of Arrow's writer, with the checksums of a Parquet file that perfkit did not write."""
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=rows, **options)
    data = out.getvalue()
    chunks = checksums.of_chunks(pq.read_metadata(out), memoryview(data))
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    return data[: -8 - len(footer)] + checksums.end_of_file(chunks, footer)


@pytest.mark.parametrize(("rows", "groups"), [(1, 20), (2, 20), (100, 7), (342, 3), (684, 2), (685, 1)])
def test_a_recording_is_written_as_arrow_writes_it(rows: int, groups: int) -> None:
    table = load(OWN).events.unify_dictionaries().slice(0, 20 * rows).replace_schema_metadata(MARK)
    options = encoding(table.schema)
    found = by_us(table, rows, options)
    assert found == by_arrow(table, rows, options)
    assert pq.read_metadata(io.BytesIO(found)).num_row_groups == groups
    assert pq.read_table(io.BytesIO(found)).equals(table)


def test_a_table_in_pieces_is_written_as_arrow_writes_it() -> None:
    table = load(OWN).events.slice(0, 300)
    pieces = pa.concat_tables([table.slice(0, 7), table.slice(7, 200), table.slice(207)]).unify_dictionaries()
    options = encoding(table.schema)
    assert by_us(pieces, 90, options) == by_arrow(pieces, 90, options)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"compression": "none", "use_dictionary": False},
    {"compression": "gzip", "write_statistics": False},
    {"data_page_size": 64, "data_page_version": "2.0", "version": "1.0"},
    {"store_schema": False, "use_byte_stream_split": ["b"], "use_dictionary": ["a"]},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "none")
def test_any_options_and_columns(options: dict[str, Any]) -> None:
    """Footers with other fields are covered: more pages, booleans, lists, structs, encodings, statistics of every
    type."""
    values = np.random.default_rng(1)
    rows = 1000
    table = pa.table(
        {
            "a": values.integers(-(2**62), 2**62, rows),
            "b": values.random(rows),
            "c": [f"text {i % 7} ü" if i % 3 else None for i in range(rows)],
            "d": [bool(i % 2) for i in range(rows)],
            "e": [[i, None] if i % 5 else [] for i in range(rows)],
            "f": [{"x": i, "y": str(i)} for i in range(rows)],
            "g": pa.nulls(rows, pa.int32()),
            "h": pa.array(values.integers(0, 2**31, rows), pa.timestamp("us")),
        }
    )
    assert by_us(table, 90, options) == by_arrow(table, 90, options)


def test_many_groups_have_offsets_of_more_bytes_than_the_first() -> None:
    table = pa.table({"a": np.random.default_rng(1).integers(0, 2**62, 200_000)})
    options = {"compression": "none", "use_dictionary": False}
    assert by_us(table, 500, options) == by_arrow(table, 500, options)


def test_a_table_without_rows_is_written() -> None:
    table = small_trace().events.slice(0, 0)
    assert pq.read_table(io.BytesIO(by_us(table, 5, encoding(table.schema)))).equals(table)


def test_an_error_in_a_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    write = pq.write_table

    def failing(table: pa.Table, *args: Any, **options: Any) -> None:
        if table.column(0)[0].as_py() == 300:
            raise OSError("disk full")
        write(table, *args, **options)

    monkeypatch.setattr(pq, "write_table", failing)
    with pytest.raises(OSError, match="disk full"):
        by_us(pa.table({"a": range(1000)}), 100, {})


def test_a_write_error_stops_all_threads() -> None:
    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            if self.tell() > 3000:
                raise OSError(28, "No space left on device")
            return super().write(data)

    with pytest.raises(OSError, match="No space left"):
        writer.write(pa.table({"a": np.random.default_rng(1).integers(0, 2**62, 5000)}), Full(), 100, {})
    assert not [thread.name for thread in threading.enumerate() if "perfkit-parallel" in thread.name]


def integer(value: int) -> bytes:
    """Return an integer as the compact protocol writes it."""
    rest, found = 2 * value, b""
    while rest > 127:
        found, rest = found + bytes([rest % 128 + 128]), rest // 128
    return found + bytes([rest])


def struct(fields: dict[int, tuple[int, bytes]]) -> bytes:
    """Return a structure with fields of the given types and bytes."""
    return b"".join(bytes([kind]) + integer(number) + value for number, (kind, value) in fields.items()) + b"\0"


def footer(at: int, ordinal: int, index_at: int | None = None) -> bytes:
    """Return the footer of a row group with two columns and every offset that a footer may have."""
    pages = {9: (6, integer(at + 10)), 10: (6, integer(at + 20)), 11: (6, integer(at)), 12: (12, struct({}))}
    index = {} if index_at is None else {4: (6, integer(index_at))}
    chunk = struct({1: (8, b"\x02me"), 2: (6, integer(at + 30)), 3: (12, struct(pages)), **index})
    none = struct({2: (6, integer(0)), 3: (12, struct({9: (6, integer(at + 50)), 13: (9, b"\x21\1\2")}))})
    group = {1: (9, b"\x2c" + chunk + none), 2: (6, integer(777)), 5: (6, integer(at)), 7: (4, integer(ordinal))}
    return struct({1: (5, integer(2)), 3: (6, integer(4)), 4: (9, b"\x1c" + struct(group)), 9: (1, b"")})


@pytest.mark.parametrize("by", [0, 1, 60, 1 << 20, 1 << 40])
def test_every_offset_moves_and_the_ordinal_is_set(by: int) -> None:
    """Newer versions of Arrow do not write some of these offsets."""
    assert relocated(footer(4, 0), by, 5) == footer(4 + by, 5)


def test_page_indexes_and_bloom_filters_are_refused() -> None:
    with pytest.raises(ValueError, match="page index"):
        relocated(footer(4, 0, 99), 7, 1)


def test_a_truncated_or_invalid_footer_is_refused() -> None:
    file = by_arrow(pa.table({"a": [1, 2], "b": ["x", None]}), 5, {})
    footer = file[-8 - int.from_bytes(file[-8:-4], "little") : -8]
    assert relocated(footer, 0, 0) == footer
    for end in range(len(footer)):
        with pytest.raises(ValueError, match="Parquet footer"):
            relocated(footer[:end], 7, 1)
    with pytest.raises(ValueError, match="unknown type 15"):
        relocated(b"\x1f\x00", 0, 0)
