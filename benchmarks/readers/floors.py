"""Lower bounds for a reader: parse the file without keeping anything, or only read its bytes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from benchmarks.readers.contract import Outcome, Reader


def _simdjson(file: Path, folder: Path) -> Outcome:
    import simdjson

    document = simdjson.Parser().load(str(file))
    return Outcome(len(document["traceEvents"]), 0, document)


def _bytes(file: Path, folder: Path) -> Outcome:
    buffer = bytearray(1 << 20)
    total = 0
    with file.open("rb", buffering=0) as opened:
        while count := opened.readinto(buffer):
            total += count
    return Outcome(0, 0, total)


_ASCEND = {
    "PYTORCH_API": "startNs, endNs, globalTid, connectionId, name, sequenceNumber, fwdThreadId, inputShapes, "
    "inputDtypes, callchainId, type",
    "PYTORCH_CALLCHAINS": "id, stack, stackDepth",
    "CONNECTION_IDS": "id, connectionId",
    "CANN_API": "startNs, endNs, type, globalTid, connectionId, name",
    "TASK": "startNs, endNs, deviceId, connectionId, globalTaskId, taskType, contextId, streamId, taskId",
    "COMPUTE_TASK_INFO": "name, globalTaskId, blockDim, taskType, opType, inputShapes, inputDataTypes, waitNs",
}


def _sqlite(folder_of_rank: Path, folder: Path) -> Outcome:
    (file,) = folder_of_rank.rglob("ascend_pytorch_profiler_*.db")
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?immutable=1", uri=True)) as connection:
        rows = [connection.execute(f"SELECT {columns} FROM {table}").fetchall() for table, columns in _ASCEND.items()]
    return Outcome(sum(map(len, rows)), 0, rows)


SQLITE = Reader(
    "SQLite, fetchall of an Ascend database",
    "floor",
    "Python's sqlite3: the columns that perfkit reads of the six largest tables, nothing joined or decoded",
    (),
    _sqlite,
)
"""Not among the readers of trace files, because it reads databases."""

READERS = (
    Reader(
        "simdjson, DOM only",
        "floor",
        "pysimdjson: the C++ parser builds its tape of the whole file; no columns are created and no events are read",
        ("simdjson",),
        _simdjson,
    ),
    Reader("reading the bytes", "floor", "the file through a buffer of 1 MB, nothing decoded", (), _bytes),
)
