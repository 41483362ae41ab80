"""Measure the time and memory of all views: ``python -m benchmarks.all_views [--events N]``

The trace is one long recording of one rank. The events of a real trace are repeated in memory until there are 1 or 10
million events. Each size is measured in a separate process. The views run one after the other. Data that several views
need is computed by the first of them and reused by the others, as in a report. So the time of the first view includes
this computation. The numbers are medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import warnings
from collections.abc import Callable, Sequence

from benchmarks import console, process
from benchmarks.inputs import large
from benchmarks.results import Check, Section, Table, at_most, number
from benchmarks.rounds import Result, costs, reasons, take_turns

TARGETS_S = {1_000_000: 2.0, 10_000_000: 15.0}
_SHOWN = 12


def once(events: int, rounds: int) -> dict[str, float]:
    """Return the measurements by name. ``seconds`` and ``cpu_seconds`` are totals of all views. The name of a view has
    its seconds. ``peak_bytes`` is the peak memory on top of the trace."""
    from benchmarks.views import one_after_the_other, repeated
    from perfkit_core.plugins.manager import get_plugins
    from perfkit_core.readers.load import load

    views = get_plugins().views()
    small = load(large(20))
    one_after_the_other(small, list(views.values()))
    trace = repeated(small, events)
    process.reset_peak()
    base, cpu = process.resident_bytes(), process.cpu_seconds()
    times = [one_after_the_other(trace, list(views.values())) for _ in range(rounds)]
    used = (process.cpu_seconds() - cpu) / rounds
    each = {name: statistics.median(of) for name, of in zip(views, zip(*times, strict=True), strict=True)}
    whole = statistics.median(map(sum, times))
    return {"seconds": whole, "cpu_seconds": used, "peak_bytes": process.peak_bytes() - base, **each}


def section(sizes: Sequence[int], rounds: int, say: Callable[[str], None]) -> Section:
    """Return the results for each size, with checks of the targets, and the slowest views for each size."""
    asked = [(f"{size:,} events", ["-m", "benchmarks.all_views", "--one", str(size), str(rounds)], 1) for size in sizes]
    results = take_turns(asked, 1, say)
    checks = tuple(_check(size, result) for size, result in zip(sizes, results, strict=True) if size in TARGETS_S)
    whole = tuple(costs(result) for result in results)
    columns = ("", "s", "CPU s", "peak MB on top of the trace")
    tables = (Table("All views", columns, whole, reasons(results)), *(_slowest(one) for one in results if one.samples))
    numbers = {result.name: result.samples or result.reason for result in results}
    about = (__doc__ or "").split("\n\n")[1]
    return Section("Views", about, tables, checks, numbers)


def _check(size: int, result: Result) -> Check:
    return at_most(f"all views over {size / 1e6:g} M events", TARGETS_S[size], result.median("seconds"), "s")


def _slowest(result: Result) -> Table:
    sample = next(iter(result.samples.values()), {})
    each = {name: seconds for name, seconds in sample.items() if name not in ("seconds", "cpu_seconds", "peak_bytes")}
    top = sorted(each.items(), key=lambda item: -item[1])[:_SHOWN]
    rows = tuple((name, number(seconds * 1e3), number(100 * seconds / sample["seconds"])) for name, seconds in top)
    title = f"{result.name}: the slowest of {len(each)} views"
    return Table(title, ("view", "ms", "% of all"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--events", type=int, action="append", help="number of events; repeatable (default: 1 and 10 million)"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        warnings.simplefilter("ignore")
        print(json.dumps(once(*options.one)))
    else:
        console.show(section(options.events or list(TARGETS_S), options.rounds, console.progress))


if __name__ == "__main__":
    main()
