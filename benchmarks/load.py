"""Measure the time and memory of commands on large and extreme inputs: ``python -m benchmarks.load [--quick]``

Long recordings are the events of a real trace, many times one after the other, as a trace file and as a stored run. The
extreme traces have a very large number or size of one thing, such as steps, threads, or names of 1 MB. Each command
runs in a separate process, and the times include imports. A command fails if it needs more than the stated memory.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import console, extremes, large_runs
from benchmarks.inputs import folder, large
from benchmarks.results import Section, Table, number
from benchmarks.rounds import run

_EVENTS_PER_MB = 2950
"""Events in 1 MB of the repeated trace."""
_MEMORY = {1_000_000: "2 GB", 10_000_000: "8 GB", 100_000_000: "4 GB"}
"""Number of events of a long recording → memory that each command may use."""
_EXTREME_MEMORY = "4 GB"
_EXTREMES = {"steps": 100, "threads": 100, "streams": 100, "names": 10, "named-apart": 100, "stairs": 10}
"""Extreme trace → divisor of its default count for a quick run."""
_QUICK_EXTREMES = 1
"""Number of extreme traces in a quick run. Each takes eleven commands."""
_STORED_VIEWS = ("overview", "operators", "steps")


def commands(source: Path, out: Path) -> Iterator[list[str]]:
    """Yield the arguments of each command that reads a profile."""
    yield ["summary", str(source)]
    yield ["summary", str(source), "--view", "all", "-o", str(out / "all.json")]
    yield ["report", str(source), "-o", str(out / "page.html")]
    yield ["advise", str(source)]
    yield ["compare", str(source), str(source)]
    for name in ("chrome", "folded", "speedscope", "pprof", "csv", "parquet"):
        yield ["export", str(source), "--to", name, "-o", str(out / f"export.{name}")]


def views(source: Path, out: Path) -> Iterator[list[str]]:
    """Yield commands that read few columns of a stored run."""
    for view in _STORED_VIEWS:
        yield ["summary", str(source), "--view", view]


def section(sizes: tuple[int, ...], stored: int, quick: bool, say: Callable[[str], None]) -> Section:
    """Return the results of all commands. ``sizes`` are the events of trace files, ``stored`` those of a stored run."""
    rows: list[tuple[str, ...]] = []
    for events in sizes:
        source = large(events // _EVENTS_PER_MB)
        rows += _measured(f"{events / 1e6:g} M events", source, commands, _MEMORY.get(events, "2 GB"), say)
    for name, divisor in list(_EXTREMES.items())[: _QUICK_EXTREMES if quick else None]:
        make, suffix, count = extremes.TRACES[name]
        count = count // divisor if quick else count
        source = folder() / f"extreme-{name}-{count}{suffix}"
        if not source.exists():
            make(source, count)
        rows += _measured(f"{count:,} {name}", source, commands, _EXTREME_MEMORY, say)
    large_runs.make(stored)
    limit = _MEMORY.get(stored, "4 GB")
    rows += _measured(f"stored run of {stored / 1e6:g} M events", large_runs.made(stored), views, limit, say)
    about = (__doc__ or "").split("\n\n")[1]
    columns = ("input", "command", "s", "CPU s", "peak MB", "allowed")
    return Section("Large and extreme inputs", about, (Table("", columns, tuple(rows), ""),), (), {})


def _measured(
    name: str,
    source: Path,
    asked: Callable[[Path, Path], Iterator[list[str]]],
    most: str,
    say: Callable[[str], None],
) -> Iterator[tuple[str, ...]]:
    with tempfile.TemporaryDirectory() as out:
        for arguments in asked(source, Path(out)):
            shown = " ".join(part for part in arguments if not part.startswith(("/", "-o")))
            costs = run(["-m", "benchmarks.command", "--one", *arguments, "--max-memory", most])
            if isinstance(costs, str):
                say(f"{name}: {shown}: {costs}")
                yield name, shown, "-", "-", "-", f"{most}: {costs[:60]}"
                continue
            say(f"{name}: {shown}: {costs['seconds']:.1f} s, {costs['peak_bytes'] / 1e6:,.0f} MB")
            figures = (number(costs["seconds"]), number(costs["cpu_seconds"]), number(costs["peak_bytes"] / 1e6))
            yield name, shown, *figures, most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small inputs, to see whether everything works")
    parser.add_argument("--events", type=int, action="append", help="events of a trace file; repeatable")
    parser.add_argument("--stored", type=int, help="events of the stored run")
    options = parser.parse_args()
    sizes = tuple(options.events or ((100_000,) if options.quick else (1_000_000, 10_000_000)))
    stored = options.stored or (1_000_000 if options.quick else 100_000_000)
    console.show(section(sizes, stored, options.quick, console.progress))


if __name__ == "__main__":
    main()
