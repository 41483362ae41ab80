"""Measure the time from a recorded Paddle training to a result: ``python -m benchmarks.live_paddle [--events N]``.

perfkit's handler is compared with Paddle's own methods. Each measurement is a new process. It trains a small model on
the CPU and records it with Paddle's profiler, once without options and once with ``profile_memory=True``. The time runs
from the profiler's callback to the result. The result is a stored run, the printed tables of ``summary()``, or a JSON
file that is written but not read. The column "training waits" is the part of this time in which the training stands
still. The column "memory" is the peak memory of the process, less its memory before the callback. The methods
alternate, and the numbers are medians. A separate table lists the CPU time of each part of perfkit's handler: Paddle's
``save`` into memory, the scan of the protobuf, the creation of its columns, the assembly of the event table, and the
Parquet file.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Final

from benchmarks import console
from benchmarks.results import Check, Section, Table, at_least, at_most, number
from benchmarks.rounds import Result, take_turns

OURS: Final = "perfkit"
PARTS: Final = "parts"
WAYS: Final = {
    OURS: "perfkit, stored run",
    "summary": "Paddle, summary() printed",
    "export_chrome_tracing": "Paddle, export to JSON",
}
FASTER_THAN_SUMMARY: Final = 25
MOST_US_AN_EVENT: Final = 2.5
_COLUMNS = (
    "", "events", "s", "CPU s", "CPU µs per event", "training waits, s", "memory, GB", "result, MB",
    "time ÷ perfkit", "CPU time ÷ perfkit",
)  # fmt: skip


def measure(events: int, memory: bool, rounds: int, say: Callable[[str], None]) -> dict[str, Result]:
    """Return the results of all methods. The methods alternate."""
    options = ["memory"] if memory else []
    contenders = [
        (way, ["-m", "benchmarks.live_paddle_run", way, str(events), *options], rounds) for way in (*WAYS, PARTS)
    ]
    return {result.name: result for result in take_turns(contenders, rounds, say)}


def section(events: int, rounds: int, say: Callable[[str], None]) -> Section:
    tables: list[Table] = []
    checks: tuple[Check, ...] = ()
    numbers = {}
    for memory, told in ((False, ""), (True, ", profile_memory=True")):
        results = measure(events, memory, rounds, say)
        numbers[f"{events}{told}"] = {result.name: result.samples or result.reason for result in results.values()}
        parts = results.pop(PARTS)
        rows = tuple(_row(result, results[OURS]) for result in results.values())
        tables += [Table(f"About {events:,} events{told}", _COLUMNS, rows), _parts(parts, told)]
        checks += _checks(results, told)
    about = (__doc__ or "").split("\n\n", 1)[1]
    return Section("Live Paddle", about, tuple(tables), checks, numbers)


def _row(result: Result, ours: Result) -> tuple[str, ...]:
    if not result.samples:
        return (WAYS[result.name], result.reason, *[""] * (len(_COLUMNS) - 2))
    values = {key: result.median(key) or 0.0 for key in next(iter(result.samples.values()))}
    ratios = (result.ratio(ours, key) for key in ("seconds", "cpu_seconds"))
    return (
        WAYS[result.name],
        f"{values['events']:,.0f}",
        number(values["seconds"]),
        number(values["cpu_seconds"]),
        number(values["cpu_seconds"] / values["events"] * 1e6),
        number(values["held_seconds"]),
        number(values["peak_bytes"] / 1e9),
        number(values["result_bytes"] / 1e6),
        *("" if ratio is None else number(ratio) for ratio in ratios),
    )


def _parts(result: Result, told: str) -> Table:
    title = f"Parts of perfkit's time{told}, CPU µs per event"
    if not result.samples:
        return Table(title, ("",), ((result.reason,),))
    values = {key: result.median(key) or 0.0 for key in next(iter(result.samples.values()))}
    events = values.pop("events")
    each = {name: seconds / events * 1e6 for name, seconds in values.items()}
    each["all"] = sum(each.values())
    return Table(title, tuple(each), (tuple(map(number, each.values())),))


def _checks(results: dict[str, Result], told: str) -> tuple[Check, ...]:
    ours, table = results[OURS], results["summary"]
    cpu, events = ours.median("cpu_seconds"), ours.median("events")
    each = None if cpu is None or not events else cpu / events * 1e6
    wall, less = (table.ratio(ours, key) for key in ("seconds", "cpu_seconds"))
    aside = "" if less is None else f" ({number(less)}× in CPU time)"
    faster = f"Paddle{told}, callback → stored run: faster than summary()"
    return (
        at_most(f"Paddle{told}, callback → stored run: CPU time per event", MOST_US_AN_EVENT, each, "µs"),
        at_least(faster, FASTER_THAN_SUMMARY, wall, aside=aside),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.live_paddle",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--events", type=int, default=500_000, help="approximate number of recorded events (default: 500000)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds (default: 3)")
    options = parser.parse_args(arguments)
    console.show(section(options.events, options.rounds, console.progress))


if __name__ == "__main__":
    main()
