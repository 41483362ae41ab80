"""Write Chrome traces with an extreme number or size of one thing: ``python -m benchmarks.extremes NAME OUT [COUNT]``

The traces show whether a command needs time and memory in proportion to its input. ``TRACES`` lists them.
"""

from __future__ import annotations

import gzip
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from perfkit_core.trace.model import schema
from perfkit_core.trace.model.meta import TraceMeta
from perfkit_core.trace.storage.stored_file import KEY, Stored

_HEAD: Final = b'{"schemaVersion": 1, "deviceProperties": [], "baseTimeNanoseconds": 0, '


def event(name: str, start_us: float, dur_us: float, cat: str = "cpu_op", tid: int = 1, **more: Any) -> bytes:
    """Return an event as JSON. ``more`` are further members, such as ``args``."""
    members = {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": start_us, "dur": dur_us, **more}
    return json.dumps(members).encode()


def write(out: Path, events: Iterable[bytes], head: bytes = b"") -> None:
    """Write events as a trace, compressed if the name ends with ``.gz``. ``head`` are more members of the top level,
    each with a comma after it."""
    with gzip.open(out, "wb", 1) if out.suffix == ".gz" else out.open("wb") as file:
        file.write(_HEAD + head + b'"traceEvents": [')
        for number, text in enumerate(events):
            file.write(b",\n" + text if number else text)
        file.write(b"]}")


def steps(out: Path, count: int) -> None:
    """Steps with one operator each."""

    def events() -> Iterator[bytes]:
        for step in range(count):
            yield event(f"ProfilerStep#{step}", 10 * step, 9, "user_annotation")
            yield event("aten::mm", 10 * step + 1, 5 + step % 3)

    write(out, events())


def ranks(out: Path, count: int) -> None:
    """A folder with one file for each rank, which has one step with two operators."""
    out.mkdir(parents=True)
    for rank in range(count):
        head = b'"distributedInfo": {"backend": "nccl", "rank": %d, "world_size": %d}, ' % (rank, count)
        texts = [event("ProfilerStep#0", 0, 100 + rank % 7, "user_annotation"), event("aten::mm", 10, 50),
                 event("aten::add", 70, 10)]  # fmt: skip
        write(out / f"rank{rank}.json", texts, head)


def threads(out: Path, count: int) -> None:
    """Threads with two nested operators each, in one step."""

    def events() -> Iterator[bytes]:
        yield event("ProfilerStep#0", 0, 10 * count, "user_annotation")
        for thread in range(count):
            yield event("aten::linear", 10 * thread, 8, tid=thread + 10)
            yield event("aten::mm", 10 * thread + 1, 5, tid=thread + 10)

    write(out, events())


def streams(out: Path, count: int) -> None:
    """Streams of one device with one kernel each, in one step."""

    def events() -> Iterator[bytes]:
        yield event("ProfilerStep#0", 0, 10 * count, "user_annotation")
        for stream in range(count):
            yield event("cudaLaunchKernel", 10 * stream, 2, "cuda_runtime", args={"correlation": stream + 1})
            place = {"device": 0, "stream": stream, "correlation": stream + 1}
            yield event("gemm", 10 * stream + 3, 5, "kernel", stream, args=place)

    write(out, events())


def names(out: Path, count: int) -> None:
    """Operators with names of 1 MB that differ at the end."""
    write(out, (event("a" * (1 << 20) + str(number), 10 * number, 5) for number in range(count)))


def named_apart(out: Path, count: int) -> None:
    """Operators with different names."""
    write(out, (event(f"aten::op{number}", 10 * number, 5) for number in range(count)))


def nested(out: Path, count: int) -> None:
    """Operators of equal times, each of which lies inside the previous one."""
    write(out, (event(f"aten::op{number}", 0, 1000) for number in range(count)))


def stairs(out: Path, count: int) -> None:
    """Operators that lie inside each other and have self time."""
    write(out, (event(f"aten::op{number % 10}", number, 2 * (count - number)) for number in range(count)))


def blanks(out: Path, count: int) -> None:
    """``count`` spaces between two events."""

    def events() -> Iterator[bytes]:
        yield event("aten::mm", 0, 5)
        yield b" " * count + event("aten::mm", 10, 5)

    write(out, events())


def long_name(out: Path, count: int) -> None:
    """One operator with a name of ``count`` bytes."""
    write(out, [event("a" * count, 0, 5)])


def long_argument(out: Path, count: int) -> None:
    """One operator with an argument of ``count`` bytes in lists of lists, which take much memory as objects."""
    write(out, [event("aten::mm", 0, 5)[:-1] + b', "args": {"x": [' + b"[]," * (count // 3) + b"[]]}}"])


def deep_argument(out: Path, count: int) -> None:
    """One operator with ``count`` lists inside each other."""
    write(out, [event("aten::mm", 0, 5)[:-1] + b', "args": {"x": ' + b"[" * count + b"]" * count + b"}}"])


def equal_events(out: Path, count: int) -> None:
    """Operators that compress very well."""
    write(out, itertools.repeat(event("aten::mm", 0, 5), count))


def long_header(out: Path, count: int) -> None:
    """A member of the top level with ``count`` bytes in lists of lists."""
    write(out, [event("aten::mm", 0, 5)], b'"x": [' + b"[]," * (count // 3) + b"[]], ")


def stored(out: Path, count: int) -> None:
    """A stored run of ``count`` equal events, which takes a few bytes for each row group."""
    words = {"name": "op", "device": schema.CPU, "kind": schema.OPERATOR}
    codes = pa.array(np.zeros(_GROUP, np.int32))
    cells = {name: pa.DictionaryArray.from_arrays(codes, pa.array([word])) for name, word in words.items()}
    zeros = pa.array(np.zeros(_GROUP, np.int64))
    table = pa.table([cells.get(field.name, _cells(field, zeros)) for field in schema.SCHEMA], schema=schema.SCHEMA)
    empty = tuple(name for name in schema.COLUMN_NAMES if table[name].null_count == len(table))
    meta = TraceMeta(source="made", format="made", ranks=(0,))
    key = {KEY: Stored(schema_version=schema.SCHEMA_VERSION, meta=meta, quality=(), empty=empty).json()}
    with pq.ParquetWriter(out, schema.SCHEMA, compression="zstd") as writer:
        for _ in range(-(-count // _GROUP)):
            writer.write_table(table, row_group_size=_GROUP)
        writer.add_key_value_metadata(key)


_GROUP: Final = 1 << 20


def _cells(field: pa.Field, zeros: pa.Array) -> pa.Array:
    if field.name in ("launched_by", "parent"):
        return pa.array(np.full(_GROUP, -1, np.int64))
    filled = field.name in ("start_ns", "dur_ns", "self_ns", "pid", "tid", "rank", "step", "bytes", "correlation")
    return zeros.cast(field.type) if filled else pa.nulls(_GROUP, field.type)


TRACES: Final[dict[str, tuple[Callable[[Path, int], None], str, int]]] = {
    "steps": (steps, ".json", 1_000_000),
    "ranks": (ranks, "", 10_000),
    "threads": (threads, ".json", 100_000),
    "streams": (streams, ".json", 100_000),
    "names": (names, ".json", 30),
    "named-apart": (named_apart, ".json", 300_000),
    "nested": (nested, ".json", 20_000),
    "stairs": (stairs, ".json", 20_000),
    "blanks": (blanks, ".json.gz", 1 << 30),
    "long-name": (long_name, ".json.gz", 1 << 30),
    "long-argument": (long_argument, ".json.gz", 60 << 20),
    "deep-argument": (deep_argument, ".json.gz", 1_000_000),
    "long-header": (long_header, ".json.gz", 60 << 20),
    "equal-events": (equal_events, ".json.gz", 20_000_000),
    "stored": (stored, ".perfkit.parquet", 200_000_000),
}
"""Name → (writer, suffix of the file or folder, default count)."""


def main() -> None:
    name, out = sys.argv[1], Path(sys.argv[2])
    make, suffix, count = TRACES[name]
    make(out.with_name(out.name + suffix), int(sys.argv[3]) if len(sys.argv) > 3 else count)


if __name__ == "__main__":
    main()
