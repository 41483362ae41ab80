"""JSON decoders in Python: the entire file is decoded and then converted to columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.readers.contract import COLUMNS, Outcome, Reader


def _pandas(file: Path, folder: Path) -> Outcome:
    import json

    import pandas as pd

    with file.open("rb") as opened:
        frame = pd.DataFrame(json.load(opened)["traceEvents"])
    frame = frame[[name for name in COLUMNS if name in frame]]
    return Outcome(len(frame), int(frame.memory_usage(deep=True).sum()), frame)


def _orjson(file: Path, folder: Path) -> Outcome:
    import orjson
    import pyarrow as pa

    events = orjson.loads(file.read_bytes())["traceEvents"]
    columns: dict[str, Any] = {}
    for name in ("name", "cat", "ph"):
        columns[name] = pa.array([event.get(name) for event in events], pa.string())
    for name in ("ts", "dur"):
        columns[name] = pa.array([event.get(name) for event in events], pa.float64())
    for name in ("pid", "tid"):
        columns[name] = pa.array([str(event.get(name)) for event in events], pa.string())
    columns["args"] = pa.array([orjson.dumps(event.get("args")).decode() for event in events], pa.string())
    table = pa.table(columns)
    return Outcome(table.num_rows, table.nbytes, table)


def _msgspec(file: Path, folder: Path) -> Outcome:
    import msgspec
    import pyarrow as pa

    event = msgspec.defstruct(
        "Event",
        [
            *((name, str | None, None) for name in ("name", "cat", "ph")),
            *((name, float | None, None) for name in ("ts", "dur")),
            *((name, int | str | None, None) for name in ("pid", "tid")),
            ("args", msgspec.Raw, msgspec.Raw(b"")),
        ],
        gc=False,
    )
    trace = msgspec.defstruct("File", [("traceEvents", list[event])])  # type: ignore[valid-type]
    events: Any = msgspec.json.Decoder(trace).decode(file.read_bytes()).traceEvents  # type: ignore[attr-defined]
    columns: dict[str, Any] = {}
    for name in ("name", "cat", "ph"):
        columns[name] = pa.array([getattr(event, name) for event in events], pa.string())
    for name in ("ts", "dur"):
        columns[name] = pa.array([getattr(event, name) for event in events], pa.float64())
    for name in ("pid", "tid"):
        columns[name] = pa.array([str(getattr(event, name)) for event in events], pa.string())
    columns["args"] = pa.array([bytes(event.args) for event in events], pa.binary())
    table = pa.table(columns)
    return Outcome(table.num_rows, table.nbytes, table)


READERS = (
    Reader(
        "json + pandas",
        "peer",
        "json.load, DataFrame of traceEvents; args stay Python dicts, times float64",
        ("json", "pandas", "pyarrow.pandas_compat"),
        _pandas,
        slow=True,
    ),
    Reader(
        "orjson → Arrow",
        "peer",
        "orjson.loads, one list comprehension per column; args as JSON text, times float64",
        ("orjson", "pyarrow.pandas_compat"),
        _orjson,
        slow=True,
    ),
    Reader(
        "msgspec typed → Arrow",
        "peer",
        "decoded into typed structs, one list comprehension per column; args as raw bytes, times float64",
        ("msgspec", "pyarrow.pandas_compat"),
        _msgspec,
    ),
)
