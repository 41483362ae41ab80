"""Measure the time and memory of perfkit commands: ``python -m benchmarks.command [--rounds N]``

The time is that of the whole process, including all imports. Byte code and files are cached. "First run" means that
perfkit's cache folder is empty, as after an installation. The commands alternate, and the numbers are medians.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks import console
from benchmarks.inputs import large, megabyte
from benchmarks.results import Section, Table, at_most
from benchmarks.rounds import ROOT, Result, costs, reasons, run, take_turns

_PERFKIT = "import sys; from perfkit_core.cli.main import main; sys.exit(main())"
COLD, REPORT = "summary of 1 MB", "report of 100 MB"
FIRST: Final = ", first run"


def timed(arguments: list[str], first: bool = False) -> dict[str, float]:
    """Run ``perfkit`` with these arguments. Return the seconds, CPU seconds and peak memory of the process. If
    ``first`` is set, its cache folder is empty."""
    command = [sys.executable, "-c", _PERFKIT, *arguments]
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryDirectory() as empty:
        environment = os.environ | {"XDG_CACHE_HOME": empty} if first else None
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said, cwd=ROOT, env=environment)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        if process.returncode:
            raise SystemExit(f"ended with {process.returncode}: {said.read().strip()[-300:]}")
    unit = 1 if sys.platform == "darwin" else 1024
    return {"seconds": seconds, "cpu_seconds": used.ru_utime + used.ru_stime, "peak_bytes": used.ru_maxrss * unit}


def section(rounds: int, say: Callable[[str], None], large_mb: int = 100) -> Section:
    """Return the results of each command, checked against its target. The commands alternate."""
    small, big = megabyte(), large(large_mb)
    with tempfile.TemporaryDirectory() as folder:
        page = str(Path(folder) / "report.html")
        commands = {
            "--version": ["--version"],
            COLD: ["summary", str(small)],
            "report of 1 MB": ["report", str(small), "-o", page],
            f"summary of {large_mb} MB": ["summary", str(big)],
            f"advise of {large_mb} MB": ["advise", str(big)],
            f"report of {large_mb} MB": ["report", str(big), "-o", page],
            f"compare of {large_mb} MB with itself": ["compare", str(big), str(big)],
        }
        again = [(name, ["-m", "benchmarks.command", "--one", *each], rounds) for name, each in commands.items()]
        first = [
            (name + FIRST, ["-m", "benchmarks.command", "--first", "--one", *each], rounds)
            for name, each in commands.items() if "MB" in name
        ]  # fmt: skip
        contenders = [*again, *first]
        run(["-m", "benchmarks.command", "--one", "summary", str(small)])  # caches
        results = {result.name: result for result in take_turns(contenders, rounds, say)}
    checks = (
        at_most("perfkit summary of 1 MB, cold process", 1.0, results[COLD].median("seconds"), "s"),
        at_most("perfkit report of 100 MB", 4.0, _seconds(results.get(REPORT)), "s"),
        at_most("first run of a command ÷ a later run, the largest", 2.0, _slowest_first(results), "×"),
    )
    rows = tuple(costs(result) for result in results.values())
    table = Table("", ("perfkit …", "s", "CPU s", "peak MB"), rows, reasons(list(results.values())))
    numbers = {name: result.samples or result.reason for name, result in results.items()}
    return Section("The command line", (__doc__ or "").split("\n\n")[1], (table,), checks, numbers)


def _slowest_first(results: dict[str, Result]) -> float | None:
    """Return the largest ratio of the first run of a command to a later run."""
    pairs = [(_seconds(results[name]), _seconds(results.get(name + FIRST))) for name in results]
    return max((first / again for again, first in pairs if again and first), default=None)


def _seconds(result: Result | None) -> float | None:
    return result.median("seconds") if result else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--first", action="store_true", help="with --one: with an empty cache folder")
    parser.add_argument("--one", nargs=argparse.REMAINDER, help="run perfkit once and print its cost as JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(timed(options.one, options.first)))
    else:
        console.show(section(options.rounds, console.progress))


if __name__ == "__main__":
    main()
