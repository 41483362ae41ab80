"""Measure views of a large stored run: ``python -m benchmarks.large_runs [--events N]``

The run holds the events of one trace many times, one copy after the other. ``perfkit summary RUN --view …`` reads only
the columns that the view needs. Each view runs in a separate process, and the times include imports. The numbers are
medians of the rounds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from benchmarks import console
from benchmarks.inputs import folder, large
from benchmarks.results import Section, Table, number
from benchmarks.rounds import Result, reasons, run, take_turns

VIEWS = ("overview", "steps", "operators")
_MAKE = "from benchmarks import large_runs; import sys; print(large_runs.make(int(sys.argv[1])))"


def made(events: int) -> Path:
    """Return the path of the run with this number of events."""
    return folder() / f"run-{events}"


def make(events: int) -> int:
    """Create the run unless it exists. Return the size of its files in bytes."""
    from benchmarks.stored_runs import make as write
    from perfkit_core.readers.load import load

    out = made(events)
    if not any(out.glob("*.parquet")):  # an interrupted file has another suffix
        write(load(large(20)), out, events)
    return sum(file.stat().st_size for file in out.glob("*.parquet"))


def section(events: int, rounds: int, say: Callable[[str], None]) -> Section:
    """Return the results of each view of the run. The views alternate."""
    title = f"A stored run of {events / 1e6:g} M events"
    say(f"making {made(events)}")
    size = run(["-c", _MAKE, str(events)])
    if isinstance(size, str):
        raise RuntimeError(size)
    contenders = [
        (view, ["-m", "benchmarks.command", "--one", "summary", str(made(events)), "--view", view], rounds)
        for view in VIEWS
    ]
    results = take_turns(contenders, rounds, say)
    about = (__doc__ or "").split("\n\n")[1] + f" The files take {size / 1e6:,.0f} MB."
    rows = tuple(_row(result, events) for result in results)
    columns = ("view", "s", "CPU s", "peak MB", "M events per second")
    numbers = {result.name: result.samples or result.reason for result in results}
    return Section(title, about, (Table("", columns, rows, reasons(results)),), (), numbers)


def _row(result: Result, events: int) -> tuple[str, ...]:
    seconds, cpu, peak = (result.median(key) for key in ("seconds", "cpu_seconds", "peak_bytes"))
    if seconds is None or cpu is None or peak is None:
        return (result.name, *"----")
    return result.name, number(seconds), number(cpu), number(peak / 1e6), number(events / 1e6 / seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=20_000_000, help="number of events (default: 20 million)")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    console.show(section(options.events, options.rounds, console.progress))


if __name__ == "__main__":
    main()
