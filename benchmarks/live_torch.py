"""Measure the time from a recorded torch training to a result: ``python -m benchmarks.live_torch [--events N]``.

perfkit's handler is compared with torch's own methods. Each measurement is a new process. It trains a small model on
the CPU and records shapes and memory. The time runs from the profiler's callback to the result. The result is a stored
run, the printed table of ``key_averages()``, or the file of ``export_chrome_trace()``, which is written but not read.
The column "training waits" is the part of this time in which the training stands still. The column "memory" is the peak
memory of the process, less its memory before the callback. The methods alternate, and the numbers are medians.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Final

from benchmarks import console
from benchmarks.results import Check, Section, Table, at_least, at_most, number
from benchmarks.rounds import Result, take_turns

OURS: Final = "perfkit"
WAYS: Final = {
    OURS: "perfkit, stored run",
    "key_averages": "torch, key_averages() printed",
    "export_chrome_trace": "torch, export_chrome_trace()",
}
FASTER_THAN_KEY_AVERAGES: Final = 8
MOST_GB_A_MILLION: Final = 1.2
_COLUMNS = (
    "", "events", "s", "CPU s", "CPU µs per event", "training waits, s", "memory, GB", "result, MB",
    "CPU time ÷ perfkit",
)  # fmt: skip


def measure(events: int, rounds: int, say: Callable[[str], None]) -> list[Result]:
    """Return the results of all methods. ``key_averages()`` takes minutes and runs only in the first round."""
    contenders = [
        (way, ["-m", "benchmarks.live_torch_run", way, str(events)], 1 if way == "key_averages" else rounds)
        for way in WAYS
    ]
    return take_turns(contenders, rounds, say)


def section(events: int, rounds: int, say: Callable[[str], None]) -> Section:
    results = {result.name: result for result in measure(events, rounds, say)}
    rows = tuple(_row(result, results[OURS]) for result in results.values())
    numbers = {result.name: result.samples or result.reason for result in results.values()}
    table = Table(f"About {events:,} events, with shapes and memory", _COLUMNS, rows)
    return Section("Live torch", (__doc__ or "").split("\n\n", 1)[1], (table,), _checks(results), numbers)


def _row(result: Result, ours: Result) -> tuple[str, ...]:
    if not result.samples:
        return (WAYS[result.name], result.reason, *[""] * (len(_COLUMNS) - 2))
    values = {key: result.median(key) or 0.0 for key in next(iter(result.samples.values()))}
    ratio = result.ratio(ours, "cpu_seconds")
    return (
        WAYS[result.name],
        f"{values['events']:,.0f}",
        number(values["seconds"]),
        number(values["cpu_seconds"]),
        number(values["cpu_seconds"] / values["events"] * 1e6),
        number(values["held_seconds"]),
        number(values["peak_bytes"] / 1e9),
        number(values["result_bytes"] / 1e6),
        "" if ratio is None else number(ratio),
    )


def _checks(results: dict[str, Result]) -> tuple[Check, ...]:
    ours, table = results[OURS], results["key_averages"]
    wall, cpu = (table.ratio(ours, key) for key in ("seconds", "cpu_seconds"))
    peak, events = ours.median("peak_bytes"), ours.median("events")
    gigabytes = None if peak is None or events is None else peak / 1e9 / max(events / 1e6, 1e-9)
    aside = "" if cpu is None else f" ({number(cpu)}× in CPU time)"
    return (
        at_least(
            "torch, callback → stored run: faster than key_averages()", FASTER_THAN_KEY_AVERAGES, wall, aside=aside
        ),
        at_most("torch, memory on top of the profiler for a million events", MOST_GB_A_MILLION, gigabytes, "GB"),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.live_torch",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--events", type=int, default=1_000_000, help="approximate number of recorded events (default: 1000000)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds (default: 3)")
    options = parser.parse_args(arguments)
    console.show(section(options.events, options.rounds, console.progress))


if __name__ == "__main__":
    main()
