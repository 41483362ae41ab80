"""Measure the time and memory that advice on a trace takes: ``python -m benchmarks.advice_speed``

The measured work is the replay graph, all rules, the predictions and the combined saving. The trace is one long
recording of one rank: a real training, repeated in memory. It has no computed columns. Each size runs in a separate
process. The numbers are medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable, Sequence

from benchmarks import console, process
from benchmarks.inputs import large
from benchmarks.results import Check, Section, Table, at_most, number
from benchmarks.rounds import Result, reasons, take_turns

SIZES = (100_000, 1_000_000)
TARGET = 100_000
SECONDS, MEGABYTES = 10.0, 1_000.0


def once(events: int, rounds: int) -> dict[str, float]:
    """Return the measurements by name. The times run from the trace to the advice. ``found`` is the number of advice
    items. ``peak_bytes`` is the peak memory on top of the trace."""
    from benchmarks.views import repeated
    from perfkit_core.advice.engine import advise
    from perfkit_core.readers.load import load

    small = load(large(20))
    advise(repeated(small, len(small)))
    process.reset_peak()
    base, times, cpu = process.resident_bytes(), [], process.cpu_seconds()
    for _ in range(rounds):
        trace = repeated(small, events)
        start = time.perf_counter()
        found = advise(trace)
        times.append(time.perf_counter() - start)
    used = (process.cpu_seconds() - cpu) / rounds
    told = len(found.advice) + len(found.without_saving)
    peak = process.peak_bytes() - base
    return {"seconds": statistics.median(times), "cpu_seconds": used, "peak_bytes": peak, "found": told}


def section(sizes: Sequence[int], rounds: int, say: Callable[[str], None]) -> Section:
    """Return the results for each size. Only the size ``TARGET`` has targets."""
    command = ["-m", "benchmarks.advice_speed", "--one"]
    asked = [(f"{size:,} events", [*command, str(size), str(rounds)], 1) for size in sizes]
    results = take_turns(asked, 1, say)
    checks = tuple(
        check for size, one in zip(sizes, results, strict=True) if size == TARGET for check in _checks(size, one)
    )
    columns = ("", "s", "CPU s, including the trace", "peak MB, including the trace", "findings")
    tables = (Table("From a trace to advice", columns, tuple(map(_row, results)), reasons(results)),)
    about = (__doc__ or "").split("\n\n")[1]
    return Section("Advice", about, tables, checks, {one.name: one.samples or one.reason for one in results})


def _checks(size: int, result: Result) -> tuple[Check, ...]:
    seconds, peak = result.median("seconds"), result.median("peak_bytes")
    what = f"{size:,} events, trace → advice"
    return (
        at_most(what, SECONDS, seconds, "s"),
        at_most(f"{what}: peak memory", MEGABYTES, None if peak is None else peak / 1e6, "MB"),
    )


def _row(result: Result) -> tuple[str, ...]:
    found = [result.median(key) for key in ("seconds", "cpu_seconds", "peak_bytes", "found")]
    if any(value is None for value in found):
        return result.name, "-", "-", "-", "-"
    seconds, cpu, peak, told = (value or 0.0 for value in found)
    return result.name, number(seconds), number(cpu), number(peak / 1e6), f"{told:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--events", type=int, action="append", help="number of events; repeatable (default: 100,000 and 1,000,000)"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        warnings.simplefilter("ignore")
        print(json.dumps(once(*options.one)))
    else:
        console.show(section(options.events or SIZES, options.rounds, console.progress))


if __name__ == "__main__":
    main()
