"""Write small SQLite exports of Nsight Systems. The columns are those of schema 3.25; a test may drop tables and
columns, to write what another version or other options would give."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import Any

Row = dict[str, Any]
PUSH_POP, START_END, MARK, DOMAIN = 59, 60, 34, 75
MACHINE = 1 << 48
"""Bits of a serialized id that name the machine."""


def global_id(pid: int, tid: int = 0) -> int:
    return MACHINE | pid << 24 | tid


class Export:
    """The rows of an export, by table. Each method adds a row; ``more`` adds or replaces columns."""

    def __init__(self) -> None:
        self.tables: dict[str, list[Row]] = {}
        self.strings: dict[str, int] = {}

    def text(self, value: str) -> int:
        return self.strings.setdefault(value, 10 + len(self.strings))

    def add(self, table: str, **row: Any) -> None:
        self.tables.setdefault(table, []).append(row)

    def kernel(self, name: str, start: int, end: int, correlation: int, pid: int = 5, **more: Any) -> None:
        base = name.partition("<")[0].removeprefix("void ")
        size = {f"{what}{axis}": 1 for what in ("grid", "block") for axis in "XYZ"}
        row = {"registersPerThread": 32, "staticSharedMemory": 16, "dynamicSharedMemory": 8, "graphNodeId": None,
               "graphId": None, **size, "demangledName": self.text(name), "shortName": self.text(base)}  # fmt: skip
        self._work("KERNEL", start, end, correlation, pid, **row | more)

    def copy(self, start: int, end: int, correlation: int, size: int, pid: int = 5, **more: Any) -> None:
        row = {"bytes": size, "copyKind": 1, "srcKind": 1, "dstKind": 2, "graphNodeId": None}
        self._work("MEMCPY", start, end, correlation, pid, **row | more)

    def fill(self, start: int, end: int, correlation: int, size: int, pid: int = 5, **more: Any) -> None:
        self._work("MEMSET", start, end, correlation, pid, **{"bytes": size, "memKind": 2} | more)

    def call(self, name: str, start: int, end: int, correlation: int, pid: int = 5, tid: int = 6, **more: Any) -> None:
        row = {"start": start, "end": end, "globalTid": global_id(pid, tid), "correlationId": correlation}
        self.add("CUPTI_ACTIVITY_KIND_RUNTIME", **row, nameId=self.text(name), **more)

    def range(self, text: str | None, start: int, end: int | None, pid: int = 5, tid: int = 6, **more: Any) -> None:
        row = {"start": start, "end": end, "eventType": PUSH_POP, "text": text, "globalTid": global_id(pid, tid),
               "endGlobalTid": None, "textId": None, "domainId": 0}  # fmt: skip
        self.add("NVTX_EVENTS", **row | more)

    def _work(self, kind: str, start: int, end: int, correlation: int, pid: int, **more: Any) -> None:
        row = {"start": start, "end": end, "deviceId": 0, "contextId": 1, "streamId": 7}
        row |= {"correlationId": correlation, "globalPid": global_id(pid)}
        self.add(f"CUPTI_ACTIVITY_KIND_{kind}", **row | more)

    def write(self, path: Path, without: Collection[str] = ()) -> Path:
        """Write the file. ``without`` names tables and columns to leave out."""
        strings = [{"id": number, "value": text} for text, number in self.strings.items()]
        tables = {"StringIds": strings, **self.tables}
        with closing(sqlite3.connect(path)) as database:
            for table, rows in tables.items():
                columns = [name for name in rows[0] if name not in without] if rows else []
                if table in without or not columns:
                    continue
                listed = ", ".join(f'"{name}"' for name in columns)
                database.execute(f'CREATE TABLE "{table}" ({listed})')
                marks = ", ".join("?" * len(columns))
                values = ([row[name] for name in columns] for row in rows)
                database.executemany(f'INSERT INTO "{table}" VALUES ({marks})', values)
            database.commit()
        return path


def small() -> Export:
    """Return a process with two operators, a copy and a fill. The session began at 1,000 ns of the events' clock."""
    export = Export()
    export.range("step 3", 2_000, 9_000)
    export.range("aten::mm, seq = 4, op_id = 11, sizes = [[2, 3], [3, 4]]", 2_100, 3_000)
    export.call("cudaLaunchKernel_v7000", 2_200, 2_300, 21)
    export.kernel("void scale<(int)4, float>(T2 *, T2)", 2_400, 2_900, 21)
    export.range("aten::copy_, op_id = 12", 3_100, 4_000)
    export.call("cudaMemcpyAsync_v3020", 3_200, 3_300, 22)
    export.copy(3_400, 3_900, 22, 4096)
    export.call("cudaMemsetAsync_v3020", 4_100, 4_200, 23)
    export.fill(4_300, 4_310, 23, 64)
    export.call("cudaStreamSynchronize_v3020", 4_400, 4_500, 24)
    wait = {"start": 4_410, "end": 4_490, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 24}
    export.add("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", **wait, globalPid=global_id(5), syncType=3)
    export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1_700_000_000 * 10**9)
    export.add("ANALYSIS_DETAILS", duration=9_000, startTime=1_000, stopTime=10_000)
    export.add("ThreadNames", nameId=export.text("python3"), priority=20, globalTid=global_id(5, 6))
    export.add("META_DATA_EXPORT", name="EXPORT_HOST", value="secret-host")
    export.add("META_DATA_EXPORT", name="EXPORT_USER", value="secret-user")
    return export
