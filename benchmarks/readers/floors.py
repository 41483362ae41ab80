"""Lower bounds for a reader: parse the file without keeping anything, or only read its bytes."""

from __future__ import annotations

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
