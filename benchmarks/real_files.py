"""Read all real traces: ``python -m benchmarks.real_files [SIZE_MB]``

The traces have other shapes than the one of the benchmark ``ingest``: Python stacks, memory events, graph replays,
steps of servers, and files of Paddle. Three are synthetic: two of Paddle on a GPU, and the metadata of 100,000 threads.
Each trace is repeated until it has about the same size. A process reads all files one after the other, with the same
tool. The tools alternate, and the numbers are medians.

- perfkit reads a file into a Trace: all events with exact times, parents, launches, steps and arguments.
- orjson only parses the JSON text to Python objects.
- simdjson only parses it to its own tree. It is the fastest JSON parser available.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks import console, inputs
from benchmarks.results import Check, Section, Table, at_least, number
from benchmarks.rounds import Result, take_turns

SIZE_MB: Final = 40
PARSERS: Final = ("perfkit", "orjson", "simdjson")
METADATA: Final = "metadata of 100,000 threads"
_SMALLEST: Final = 20_000
"""Traces of fewer bytes have too few events to be repeated: perfkit would mostly label names."""


def sources() -> dict[str, Path]:
    """Return the real traces by name."""
    found = [path for path in inputs.TRACES.rglob("*.json.gz") if path.stat().st_size >= _SMALLEST]
    return {str(path.relative_to(inputs.TRACES)).removesuffix(".json.gz"): path for path in sorted(found)}


def made(size_mb: int) -> dict[str, Path]:
    """Return the files of about ``size_mb``. Create those that do not exist."""
    folder = inputs.folder() / f"real-{size_mb}mb"
    folder.mkdir(exist_ok=True)
    files = {}
    for name, source in sources().items():
        try:
            files[name] = inputs.make(source, folder / f"{name.replace('/', '-')}.json", size_mb)
        except msgspec.DecodeError:  # not a Chrome trace with a list of events
            continue
    files[METADATA] = _many_threads(folder / "threads.json", size_mb)
    return files


def _many_threads(out: Path, size_mb: int) -> Path:
    """Write a trace with two metadata events for each event, about threads most of which have no event. MTIA's profiler
    writes such traces."""
    if out.exists():
        return out
    with out.open("w", encoding="utf-8") as file:
        file.write('{"schemaVersion": 1, "traceEvents": [')
        thread = 0
        while file.tell() < size_mb * 1_000_000:
            thread += 1
            file.write(
                f'{"," if thread > 1 else ""}\n{{"name": "thread_name", "ph": "M", "ts": {thread}.125, "pid": 7, '
                f'"tid": {thread}, "args": {{"name": "worker {thread}"}}}},\n'
                f'{{"name": "thread_sort_index", "ph": "M", "ts": {thread}.125, "pid": 7, "tid": {thread}, '
                f'"args": {{"sort_index": {thread}}}}},\n'
                f'{{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": {thread % 64}, "ts": {thread}.5, '
                f'"dur": 3.25, "args": {{"External id": {thread}, "Ev Idx": {thread}}}}}'
            )
        file.write("]}\n")
    return out


def read_all(parser: str, size_mb: int) -> dict[str, float]:
    """Read each file with a tool. Return ``NAME`` → seconds and ``NAME cpu`` → CPU seconds."""
    read = _reader(parser)
    times = {}
    for name, path in made(size_mb).items():
        path.read_bytes()
        gc.collect()
        begin, cpu = time.perf_counter(), _cpu()
        result = read(path)
        times[name], times[f"{name} cpu"] = time.perf_counter() - begin, _cpu() - cpu
        del result
    return times


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _reader(parser: str) -> Callable[[Path], Any]:
    if parser == "orjson":
        import orjson

        return lambda path: [orjson.loads(each.read_bytes()) for each in _with_capture(path)]
    if parser == "simdjson":
        import simdjson

        return lambda path: [simdjson.Parser().load(str(each)) for each in _with_capture(path)]
    from perfkit_core.readers.load import load

    load(inputs.megabyte())  # imports what reading needs
    return load


def _with_capture(path: Path) -> list[Path]:
    """Return the file, and the recording of a server's graph captures, which perfkit reads with it."""
    return [each for each in (path, path.with_suffix(".capture.json")) if each.exists()]


def section(size_mb: int, rounds: int, say: Callable[[str], None]) -> Section:
    """Return the tables of all files, of the worst, the median and the best file, and the checks of the targets."""
    files = made(size_mb)
    contenders = [(name, ["-m", "benchmarks.real_files", "--parser", name, str(size_mb)], rounds) for name in PARSERS]
    results = dict(zip(PARSERS, take_turns(contenders, rounds, say), strict=True))
    rows = sorted((_row(name, path, results) for name, path in files.items()), key=lambda row: row[1])
    chosen = [("worst", rows[0]), ("median", rows[len(rows) // 2]), ("best", rows[-1])]
    columns = ("", "file", "MB/s", "cores in use", "speed ÷ orjson's parse", "speed ÷ simdjson's parse")
    table = Table(f"{len(rows)} files of {size_mb} MB", columns, tuple((label, *_cells(row)) for label, row in chosen))
    every = Table("All files, the slowest first", columns[1:], tuple(map(_cells, rows)))
    return Section("All real traces", (__doc__ or "").partition("\n\n")[2], (table, every), _checks(rows), rows)


def _row(name: str, path: Path, results: dict[str, Result]) -> tuple[str, float, float, float, float]:
    seconds, cpu = results["perfkit"].median(name), results["perfkit"].median(f"{name} cpu")
    assert seconds is not None
    assert cpu is not None
    ratios = [results[parser].ratio(results["perfkit"], name) or 0.0 for parser in PARSERS[1:]]
    size = sum(each.stat().st_size for each in _with_capture(path))
    return name, size / 1e6 / seconds, cpu / seconds, ratios[0], ratios[1]


def _cells(row: tuple[str, float, float, float, float]) -> tuple[str, ...]:
    return row[0], *map(number, row[1:])


def _checks(rows: Sequence[tuple[str, float, float, float, float]]) -> tuple[Check, ...]:
    speeds, ratios = [row[1] for row in rows], [row[3] for row in rows]
    return (
        at_least("all real traces, the slowest: reading into a Trace", 400, min(speeds), unit="MB/s"),
        at_least("all real traces, the least: faster than orjson's parse", 5, min(ratios)),
        at_least("all real traces, the median: faster than orjson's parse", 5, statistics.median(ratios)),
    )


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("size_mb", nargs="?", type=int, default=SIZE_MB)
    arguments.add_argument("--parser", choices=PARSERS)
    arguments.add_argument("--rounds", type=int, default=3)
    options = arguments.parse_args()
    if options.parser:
        print(json.dumps(read_all(options.parser, options.size_mb)))
    else:
        console.show(section(options.size_mb, options.rounds, console.progress))
