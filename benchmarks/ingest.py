"""Compare perfkit with other tools that read the same trace file: ``python -m benchmarks.ingest [FILE ...]``

Each time is measured in a new process, from opening the file to the complete result, without imports. The file is in
the page cache. The tools alternate, and the numbers are medians. "Again" is the second read in the same process.

- "Time ÷ stored run", "CPU time ÷ stored run": divided by the time in the row "perfkit, stored run", which writes the
  events to a stored run.
- "Speed ÷ simdjson": the speed in MB/s, divided by that of the row "simdjson, DOM only". simdjson is the fastest
  available parser, and keeps no result.
- "duckdb, stored run by SQL": SQL sorts the events and computes the same launches, parents, self times and steps as
  perfkit.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import console
from benchmarks.inputs import large
from benchmarks.readers import READERS
from benchmarks.readers.contract import Reader
from benchmarks.results import Check, Section, Table, at_least, at_most, number
from benchmarks.rounds import Result, reasons, run, take_turns

STORED, MEMORY, FLOOR = "perfkit, stored run", "perfkit, in memory", "simdjson, DOM only"
_MB = 1e6
_COLUMNS = (
    "", "s", "again, s", "CPU s", "MB/s", "peak ÷ file", "result ÷ file", "rows", "time ÷ stored run",
    "CPU time ÷ stored run", "speed ÷ simdjson",
)  # fmt: skip


def measure(file: Path, readers: Sequence[Reader], rounds: int, say: Callable[[str], None]) -> list[Result]:
    """Return the results of all readers for one file. The readers alternate."""
    contenders, too_large = [], []
    for one in readers:
        if one.most_mb and file.stat().st_size > one.most_mb * _MB:
            too_large.append(
                Result(one.name, {}, f"not run, because files above {one.most_mb} MB would need too much memory")
            )
            continue
        arguments = ["-m", "benchmarks.measure", one.name, str(file)]
        contenders.append((one.name, arguments, rounds))
    run(["-m", "benchmarks.measure", MEMORY, str(file)])  # loads the file into the page cache
    return [*take_turns(contenders, rounds, say), *too_large]


def table(file: Path, results: Sequence[Result]) -> Table:
    """Return a table with one row per reader: time, speed, memory, and time relative to perfkit's stored run."""
    by_name = {result.name: result for result in results}
    rows = tuple(_row(result, file.stat().st_size, by_name) for result in results)
    title = f"{file.name}, {file.stat().st_size / _MB:,.0f} MB"
    return Table(title, _COLUMNS, rows, reasons(results))


def checks(file: Path, results: Sequence[Result]) -> tuple[Check, ...]:
    """Return the checks of the targets for one file."""
    by_name = {result.name: result for result in results}
    where = f"{file.stat().st_size / _MB:,.0f} MB, file → stored run"

    def faster(than: str, name: str, target: float) -> Check:
        peer, stored = by_name.get(name), by_name.get(STORED)
        wall, cpu = (peer.ratio(stored, key) if peer and stored else None for key in ("seconds", "cpu_seconds"))
        aside = "" if cpu is None else f" ({number(cpu)}× in CPU time)"
        return at_least(f"{where}: faster than {than}", target, wall, aside=aside)

    memory = by_name[MEMORY].median("result_bytes") if MEMORY in by_name else None
    return (
        faster("HolisticTraceAnalysis", "HolisticTraceAnalysis", 60),
        faster("duckdb making a stored run by SQL", "duckdb, stored run by SQL", 4),
        faster("duckdb writing Parquet, nine arguments as columns", "duckdb, one event per line → Parquet", 4),
        faster("duckdb reading into memory, arguments as text", "duckdb, one event per line", 4),
        faster("orjson", "orjson → Arrow", 12),
        faster("simdjson's DOM", FLOOR, 1),
        at_most("table in memory ÷ file", 0.6, memory / file.stat().st_size if memory else None, ""),
    )


def section(files: Sequence[Path], readers: Sequence[Reader], rounds: int, say: Callable[[str], None]) -> Section:
    """Return the results of every reader for every file. The targets apply to the largest file."""
    tables, numbers = [], {}
    found: tuple[Check, ...] = ()
    for file in sorted(files, key=lambda one: one.stat().st_size):
        results = measure(file, readers, rounds, say)
        tables.append(table(file, results))
        numbers[file.name] = {result.name: result.samples or result.reason for result in results}
        found = checks(file, results)
    tables.append(Table("What each reader does", ("", "does"), tuple((one.name, one.does) for one in readers)))
    return Section("From a file to a table", (__doc__ or "").partition("\n\n")[2], tuple(tables), found, numbers)


def _row(result: Result, size: int, by_name: dict[str, Result]) -> tuple[str, ...]:
    seconds, cpu = result.median("seconds"), result.median("cpu_seconds")
    if seconds is None or cpu is None:
        return (result.name, *("-",) * (len(_COLUMNS) - 1))
    peak, made = result.median("peak_bytes") or 0, result.median("result_bytes") or 0
    return (
        result.name,
        number(seconds),
        _again(result, seconds),
        number(cpu),
        number(size / _MB / seconds),
        number(peak / size),
        number(made / size) if made else "-",
        f"{result.median('rows') or 0:,.0f}",
        _ratio(result, by_name.get(STORED)),
        _ratio(result, by_name.get(STORED), "cpu_seconds"),
        _ratio(by_name.get(FLOOR), result),
    )


def _again(result: Result, seconds: float) -> str:
    """Return the seconds of the second read as text, or "-" if the reader read only once."""
    again = result.median("again_seconds")
    return "-" if again is None or again == seconds else number(again)


def _ratio(one: Result | None, other: Result | None, key: str = "seconds") -> str:
    found = one.ratio(other, key) if one and other else None
    return number(found) if found is not None else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="trace files; without a file, a trace of --size-mb is created",
    )
    parser.add_argument("--size-mb", type=int, default=100, help="size of the created trace in MB (default: 100)")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds (default: 3)")
    parser.add_argument("--only", action="append", help="run only readers whose name starts with this text; repeatable")
    options = parser.parse_args()
    readers = [one for one in READERS if not options.only or one.name.startswith(tuple(options.only))]
    files = options.files or [large(options.size_mb)]
    console.show(section(files, readers, options.rounds, console.progress))


if __name__ == "__main__":
    main()
