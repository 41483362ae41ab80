"""Create large Ascend recordings for benchmarks: the events of a real recording, repeated one after the other in time,
as text and as a database. Times, connections, sequence numbers and step numbers differ between the copies. Each
recording is created once, in the folder of ``inputs``.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from benchmarks.inputs import TRACES, folder
from perfkit_core.trace.storage.bytestream import open_bytes
from tests.support.ascend import rich

_REAL: Final = TRACES / "ascend"
_OUTPUT: Final = "ASCEND_PROFILER_OUTPUT"
_TABLES: Final = ("kernel_details.csv", "operator_memory.csv")
"""The tables that perfkit reads with the text."""
_PERIOD_NS: Final = 10**9
_LINKS: Final = 10**6
"""Differences between two copies: of times, and of numbers that link events."""
_NUMBER: Final = re.compile(
    r"(?<![\d.])(?P<us>\d{16})(?!\d)|(?<!\d)(?P<ns>\d{19})(?!\d)"
    r'|"(?:(?:connection_id|correlation_id|Sequence number|id)": "?|HostToDevice)(?P<link>\d{1,12})\b'
    r"|ProfilerStep#(?P<step>\d+)"
)
_TIMES: Final = {"startNs", "endNs", "timestampNs", "timestamp", "allocationTime", "releaseTime", "activeReleaseTime"}
_LINKED: Final = {"connectionId", "globalTaskId", "callchainId", "sequenceNumber", "opId"}
_ID: Final = "id"
_OF_LINKS: Final = {"CONNECTION_IDS", "PYTORCH_CALLCHAINS"}
"""Tables whose rows are repeated although they have no other columns than these."""
_NONE: Final = 2**32 - 1


def text(size_mb: int) -> Path:
    """Return the folder of a recording as text, with about ``size_mb`` in the files that perfkit reads."""
    return _made("text", size_mb, write_text)


def database(size_mb: int) -> Path:
    """Return the folder of a recording as a database of about ``size_mb``."""
    return _made("db", size_mb, write_database)


def size_bytes(recording: Path) -> int:
    """Return the size of the files that perfkit reads of a file or folder."""
    files = recording.rglob("*") if recording.is_dir() else [recording]
    return sum(file.stat().st_size for file in files if file.is_file())


def _made(kind: str, size_mb: int, write: Callable[[Path, Path, int], None]) -> Path:
    out = folder() / f"{kind}-{size_mb}mb_ascend_pt"
    if not out.exists():
        with tempfile.TemporaryDirectory(dir=folder()) as temporary:
            source = _REAL / kind / "level1" / "rank0_ascend_pt"
            if not source.exists():
                written = Path(temporary) / "small"
                source = rich().text(written) if kind == "text" else rich().database(written)
            new = Path(temporary) / out.name
            (new / _OUTPUT).mkdir(parents=True)
            for file in source.glob("profiler_*.json"):
                shutil.copyfile(file, new / file.name)
            write(source / _OUTPUT, new / _OUTPUT, size_mb * 10**6)
            new.rename(out)
    return out


def write_text(source: Path, out: Path, size: int) -> None:
    """Write the files of the folder ``source`` into ``out``, repeated until they have about ``size`` bytes."""
    with open_bytes(next(source.glob("trace_view.json*"))) as file:
        recorded = json.load(file)
    metadata, events = (  # names of processes and threads occur once
        json.dumps([event for event in recorded if (event["ph"] == "M") == of_metadata])[1:-1]
        for of_metadata in (True, False)
    )
    tables = {name: (source / name).read_text().partition("\n") for name in _TABLES}
    copies = range(max(size // (len(events) + sum(len(rows) for _, _, rows in tables.values())), 1))
    (out / "trace_view.json").write_text(
        "[" + ", ".join([metadata, *(_shifted(events, copy) for copy in copies)]) + "]"
    )
    for name, (header, end, rows) in tables.items():
        (out / name).write_text(header + end + "".join(_shifted(rows, copy) for copy in copies))


def _shifted(content: str, copy: int) -> str:
    more = {"us": copy * _PERIOD_NS // 1000, "ns": copy * _PERIOD_NS, "link": copy * _LINKS, "step": copy}

    def number(match: re.Match[str]) -> str:
        kind = str(match.lastgroup)
        return f"{match[0][: match.start(kind) - match.start()]}{int(match[kind]) + more[kind]}"

    return _NUMBER.sub(number, content)


def write_database(source: Path, out: Path, size: int) -> None:
    """Write the database of the folder ``source`` into ``out``, repeated until it has about ``size`` bytes."""
    (file,) = source.glob("ascend_pytorch_profiler_*.db")
    shutil.copyfile(file, out / file.name)
    (out / file.name).chmod(0o644)
    with closing(sqlite3.connect(out / file.name)) as connection:
        connection.execute("ATTACH ? AS source", (f"{file.absolute().as_uri()}?immutable=1",))
        for (table,) in connection.execute("SELECT name FROM source.sqlite_master WHERE type = 'table'").fetchall():
            columns = [column[1] for column in connection.execute(f"PRAGMA source.table_info({table})")]
            if (_TIMES | _LINKED) & set(columns) or table in _OF_LINKS:
                cells = ", ".join(map(_cell, columns))
                for copy in range(1, max(size // file.stat().st_size, 1)):
                    connection.execute(f"INSERT INTO {table} SELECT {cells} FROM source.{table}", {"copy": copy})
        connection.commit()


def _cell(column: str) -> str:
    if column in _TIMES:
        return f"{column} + :copy * {_PERIOD_NS}"
    if column in _LINKED or column == _ID:
        return f"IIF({column} < {_NONE}, {column} + :copy * {_LINKS}, {column})"
    return column
