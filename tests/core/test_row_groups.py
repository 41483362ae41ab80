"""Row groups encoded at once: the file that Arrow writes alone, byte for byte, whatever is in the table."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_trace import small_trace

from perfkit_core.loading import load
from perfkit_core.storage import row_groups
from perfkit_core.storage.encoding import encoding
from perfkit_core.storage.relocation import relocated

MARK = {b"perfkit": b'{"a": 1}'}
OWN = "tests/data/torch-mlp.json.gz"


def by_us(table: pa.Table, rows: int, options: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    row_groups.write(table, out, rows, options)
    return out.getvalue()


def by_arrow(table: pa.Table, rows: int, options: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=rows, **options)
    return out.getvalue()


@pytest.mark.parametrize("rows", [1, 2, 100, 999, 1 << 20])
def test_a_recording_is_written_as_arrow_writes_it(rows: int) -> None:
    table = load(OWN).events.unify_dictionaries().slice(0, 20 * rows).replace_schema_metadata(MARK)
    options = encoding(table.schema)
    assert by_us(table, rows, options) == by_arrow(table, rows, options)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"compression": "none", "use_dictionary": False},
    {"compression": "gzip", "write_statistics": False},
    {"data_page_size": 64, "data_page_version": "2.0", "version": "1.0"},
    {"store_schema": False, "use_byte_stream_split": ["b"], "use_dictionary": ["a"]},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "none")
def test_whatever_the_options_and_the_columns_are(options: dict[str, Any]) -> None:
    """Footers of other fields: more pages, booleans, lists and structs, encodings, statistics of every type."""
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


def test_no_rows_are_a_file_too() -> None:
    table = small_trace().events.slice(0, 0)
    assert pq.read_table(io.BytesIO(by_us(table, 5, encoding(table.schema)))).equals(table)


def test_what_fails_in_a_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    write = pq.write_table

    def failing(table: pa.Table, *args: Any, **options: Any) -> None:
        if table.column(0)[0].as_py() == 300:
            raise OSError("disk full")
        write(table, *args, **options)

    monkeypatch.setattr(pq, "write_table", failing)
    with pytest.raises(OSError, match="disk full"):
        by_us(pa.table({"a": range(1000)}), 100, {})


def test_a_footer_that_is_cut_or_none_is_refused() -> None:
    file = by_arrow(pa.table({"a": [1, 2], "b": ["x", None]}), 5, {})
    footer = file[-8 - int.from_bytes(file[-8:-4], "little") : -8]
    assert relocated(footer, 0, 0) == footer
    for end in range(len(footer)):
        with pytest.raises(ValueError, match="Parquet footer"):
            relocated(footer[:end], 7, 1)
    with pytest.raises(ValueError, match="unknown type 15"):
        relocated(b"\x1f\x00", 0, 0)
