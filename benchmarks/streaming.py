"""Measure the memory for streaming files of different sizes: ``python -m benchmarks.streaming [--huge]``

``perfkit export FILE -o x.perfkit.parquet --stream`` writes the events of a trace file while reading them. It never
holds the entire file or table in memory. Each file is streamed in a separate process. "Peak MB" is the peak memory of
this process. "Peak less interpreter" is the peak memory less the memory of the interpreter, its modules and compiled
functions. The numbers are medians of the rounds.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import console
from benchmarks.inputs import large
from benchmarks.paddle_inputs import large_json, large_protobuf
from benchmarks.process import cpu_seconds, peak_bytes, reset_peak, resident_bytes
from benchmarks.results import Section, Table, at_most, number
from benchmarks.rounds import Result, reasons, take_turns

MOST_MB = 64
_EVENT = b'{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1,"args":{}}]'
SIZES_MB, HUGE_MB = (100, 500), 2000


def streamed(file: Path, folder: Path) -> dict[str, float]:
    """Stream a file and return the measurements by name. ``more_bytes`` is the peak memory minus the memory before."""
    import pyarrow as pa

    from perfkit_core.readers.load import stream

    _load_code(file, folder)
    pa.set_memory_pool(pa.system_memory_pool())  # as on the command line
    gc.collect()
    reset_peak()
    before, start, cpu = resident_bytes(), time.perf_counter(), cpu_seconds()
    stream(file, folder / "out.perfkit.parquet")
    return {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": cpu_seconds() - cpu,
        "peak_bytes": peak_bytes(),
        "more_bytes": peak_bytes() - before,
    }


def _load_code(file: Path, folder: Path) -> None:
    """Import all code that streaming this file needs."""
    from perfkit_core.readers.load import stream
    from perfkit_core.readers.scanner import chunks  # noqa: F401
    from perfkit_core.readers.scanner.scanner import Scanner, padded
    from perfkit_torch.dialect import TorchDialect

    if file.suffix == ".json":
        Scanner(TorchDialect()).scan(padded(_EVENT), 0, len(_EVENT))
    else:
        stream(large_protobuf(1), folder / "small.perfkit.parquet")


def section(sizes_mb: Sequence[int], rounds: int, say: Callable[[str], None]) -> Section:
    """Return the results for torch files of each size, and for one JSON and one protobuf file of Paddle."""
    files = [*_of_paddle(sizes_mb), *(large(size) for size in sizes_mb)]
    contenders = [(file.name, ["-m", "benchmarks.streaming", "--one", str(file)], rounds) for file in files]
    results = take_turns(contenders, rounds, say)
    rows = tuple(_row(file, result) for file, result in zip(files, results, strict=True))
    more = results[-1].median("more_bytes")
    size = f"{files[-1].stat().st_size / 1e6:,.0f} MB"
    name = f"{size} streamed to Parquet: peak memory less that of the interpreter"
    check = at_most(name, MOST_MB, None if more is None else more / 1e6, "MB")
    columns = ("", "MB", "s", "CPU s", "MB/s", "peak MB", "peak less interpreter, MB")
    numbers = {result.name: result.samples or result.reason for result in results}
    about = (__doc__ or "").split("\n\n")[1]
    return Section("Streaming", about, (Table("", columns, rows, reasons(results)),), (check,), numbers)


def _of_paddle(sizes_mb: Sequence[int]) -> list[Path]:
    """Return a JSON file and a protobuf file of Paddle, of the largest size except HUGE_MB."""
    size = min(max(sizes_mb), SIZES_MB[-1])
    return [large_json(size), large_protobuf(size)]


def _row(file: Path, result: Result) -> tuple[str, ...]:
    keys = ("seconds", "cpu_seconds", "peak_bytes", "more_bytes")
    seconds, cpu, peak, more = (result.median(key) for key in keys)
    size = file.stat().st_size / 1e6
    if seconds is None or cpu is None or peak is None or more is None:
        return (file.name, f"{size:,.0f}", *"-----")
    speed = number(size / seconds)
    return file.name, f"{size:,.0f}", number(seconds), number(cpu), speed, number(peak / 1e6), number(more / 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--huge", action="store_true", help="also stream a file of 2 GB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", type=Path, metavar="FILE", help="stream one file and print its cost as JSON")
    options = parser.parse_args()
    if options.one:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(streamed(options.one, Path(folder))))
        return
    sizes = (*SIZES_MB, HUGE_MB) if options.huge else SIZES_MB
    console.show(section(sizes, options.rounds, console.progress))


if __name__ == "__main__":
    main()
