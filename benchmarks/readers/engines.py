"""Table engines that read JSON: duckdb, polars and Arrow.

These engines are made for files with one event per line. A trace is one object with a long list, which they read
slowly. Therefore the file is first rewritten with one event per line. The measured time includes this.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.readers.contract import COLUMNS, Outcome, Reader

_STRUCT = "name VARCHAR, cat VARCHAR, ph VARCHAR, ts DOUBLE, dur DOUBLE, pid VARCHAR, tid VARCHAR, args JSON"
_INTEGERS = ("External id", "correlation", "stream", "device", "Sequence number", "Fwd thread id", "bytes")
_TEXTS = ("Input Dims", "Input type")
"""Arguments that become columns. An analysis of launches, steps and shapes needs them."""


def lines(file: Path, folder: Path) -> Path:
    """Write the events of a trace to a file with one event per line. Return its path."""
    import msgspec

    trace = msgspec.defstruct("File", [("traceEvents", list[msgspec.Raw])])
    events = msgspec.json.Decoder(trace).decode(file.read_bytes()).traceEvents  # type: ignore[attr-defined]
    out = folder / "events.ndjson"
    with out.open("wb") as opened:
        opened.writelines(bytes(event).replace(b"\n", b" ") + b"\n" for event in events)
    return out


def _duckdb(file: Path, folder: Path) -> Outcome:
    import duckdb

    table: Any = duckdb.sql(f"SELECT * FROM {_ndjson(file, folder)}")
    table = table.to_arrow_table()
    return Outcome(table.num_rows, table.nbytes, table)


def _duckdb_stored(file: Path, folder: Path) -> Outcome:
    import duckdb
    from pyarrow import parquet

    found, columns = cells("args", "$.")
    rows = f"SELECT *, {found} AS found FROM {_ndjson(file, folder)}"
    query, out = f"SELECT * EXCLUDE found, {columns} FROM ({rows})", folder / "events.parquet"
    duckdb.sql(f"COPY ({query}) TO '{out}' (FORMAT parquet, COMPRESSION zstd)")
    return Outcome(parquet.read_metadata(out).num_rows, out.stat().st_size)


def cells(column: str, path: str) -> tuple[str, str]:
    """Return two parts of SQL: one extracts all arguments into a list ``found``, and the other makes columns of the
    list. This is faster than one extraction per argument."""
    keys = ", ".join(f"""'{path}"{key}"'""" for key in (*_INTEGERS, *_TEXTS))
    columns = [f'found[{n}]::BIGINT AS "{key}"' for n, key in enumerate(_INTEGERS, 1)]
    columns += [f'found[{n}] AS "{key}"' for n, key in enumerate(_TEXTS, len(_INTEGERS) + 1)]
    return f"json_extract_string({column}, [{keys}])", ", ".join(columns)


def _ndjson(file: Path, folder: Path) -> str:
    columns = ", ".join(f"{name}: '{kind}'" for name, kind in (part.split() for part in _STRUCT.split(", ")))
    return f"read_json('{lines(file, folder)}', format='newline_delimited', columns={{{columns}}})"


def _duckdb_direct(file: Path, folder: Path) -> Outcome:
    import duckdb

    query = f"""SELECT unnest(from_json(content->'traceEvents', '["STRUCT({_STRUCT})"]'), max_depth := 2)
                FROM read_text('{file}')"""
    table: Any = duckdb.sql(query)
    table = table.to_arrow_table()
    return Outcome(table.num_rows, table.nbytes, table)


def _polars(file: Path, folder: Path) -> Outcome:
    import polars

    columns = dict.fromkeys(COLUMNS, polars.String) | dict.fromkeys(("ts", "dur"), polars.Float64)
    frame = polars.read_ndjson(lines(file, folder), schema=columns)
    return Outcome(frame.height, int(frame.estimated_size()), frame)


def _arrow(file: Path, folder: Path) -> Outcome:
    import pyarrow as pa
    from pyarrow import json

    text = dict.fromkeys(("name", "cat", "ph"), pa.string())
    args = pa.struct({"External id": pa.int64(), "correlation": pa.int64(), "stream": pa.int64()})
    kinds = pa.schema({**text, "ts": pa.float64(), "dur": pa.float64(), "args": args})
    options = json.ParseOptions(explicit_schema=kinds, unexpected_field_behavior="ignore")
    table = json.read_json(lines(file, folder), parse_options=options)
    return Outcome(table.num_rows, table.nbytes, table)


READERS = (
    Reader(
        "duckdb, one event per line",
        "peer",
        "rewritten by msgspec with one event per line, read_json with types; args as JSON text, times float64",
        ("msgspec", "duckdb", "pyarrow"),
        _duckdb,
    ),
    Reader(
        "duckdb, one event per line → Parquet",
        "peer",
        "the same, with nine arguments as additional columns (17 in total), written to Parquet with zstd",
        ("msgspec", "duckdb", "pyarrow.parquet"),
        _duckdb_stored,
    ),
    Reader(
        "duckdb, the file as it is",
        "peer",
        "read_text, from_json with types, unnest (faster here than read_json + unnest); args as JSON text",
        ("duckdb", "pyarrow"),
        _duckdb_direct,
        slow=True,
        most_mb=200,
    ),
    Reader(
        "polars, one event per line",
        "peer",
        "one event per line (by msgspec), read_ndjson with types (faster than inferring); args as JSON text",
        ("msgspec", "polars"),
        _polars,
    ),
    Reader(
        "pyarrow.json, one event per line",
        "peer",
        "rewritten by msgspec with one event per line, read_json with types; three args; no pid and tid (mixed types)",
        ("msgspec", "pyarrow.json"),
        _arrow,
    ),
)
