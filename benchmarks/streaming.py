"""Files of any size in the same memory: ``python -m benchmarks.streaming [--huge]``

``perfkit export FILE --to parquet --stream`` writes the events of a trace file as it reads them, and holds neither the
file nor the table. Each size is a process of its own, imports and all; memory is compared with the same command on
1 MB. Medians of the rounds.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import console
from benchmarks.inputs import large, megabyte
from benchmarks.results import Section, Table, at_most, number
from benchmarks.rounds import Result, reasons, take_turns

MOST_MB = 64
SIZES_MB, HUGE_MB = (100, 500), 2000


def section(sizes_mb: Sequence[int], rounds: int, say: Callable[[str], None]) -> Section:
    """Each size in turns, against the memory of the smallest."""
    files = [megabyte(), *map(large, sizes_mb)]
    with tempfile.TemporaryDirectory() as folder:
        export = ["-m", "benchmarks.command", "--one", "export", "--to", "parquet", "--stream"]
        contenders = [(file.name, [*export, "-o", f"{folder}/out.parquet", str(file)], rounds) for file in files]
        results = take_turns(contenders, rounds, say)
    base = results[0].median("peak_bytes")
    rows = tuple(_row(file, result, base) for file, result in zip(files, results, strict=True))
    last = results[-1].median("peak_bytes")
    more = (last - base) / 1e6 if last is not None and base is not None else None
    size = f"{files[-1].stat().st_size / 1e6:,.0f} MB"
    check = at_most(f"{size} streamed to Parquet: memory on top of that of 1 MB", MOST_MB, more, "MB")
    columns = ("", "MB", "s", "CPU s", "MB/s", "peak MB", "on top of 1 MB, MB")
    numbers = {result.name: result.samples or result.reason for result in results}
    about = (__doc__ or "").split("\n\n")[1]
    return Section("Streaming", about, (Table("", columns, rows, reasons(results)),), (check,), numbers)


def _row(file: Path, result: Result, base: float | None) -> tuple[str, ...]:
    seconds, cpu, peak = (result.median(key) for key in ("seconds", "cpu_seconds", "peak_bytes"))
    size = file.stat().st_size / 1e6
    if seconds is None or cpu is None or peak is None or base is None:
        return (file.name, f"{size:,.0f}", *"-----")
    more = number((peak - base) / 1e6) if peak > base else "0"
    return file.name, f"{size:,.0f}", number(seconds), number(cpu), number(size / seconds), number(peak / 1e6), more


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--huge", action="store_true", help="a file of 2 GB too")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    sizes = (*SIZES_MB, HUGE_MB) if options.huge else SIZES_MB
    console.show(section(sizes, options.rounds, console.progress))


if __name__ == "__main__":
    main()
