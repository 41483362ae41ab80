"""Measure where the time of commands goes: ``python -m benchmarks.command_parts [--rounds N]``

Each command is a new process, from its start to its exit. ``compare`` compares each file with itself. Every ms, a timer
samples the calls of the main thread, and adds the time since the last sample to one part: imports (of all packages),
reading (until the event table exists), analysis (views, replay, advice and comparison), or output (formats, texts and
HTML). The start of Python and the exit are the rest. Other threads work only during reading and in some views.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from benchmarks.results import Section, Table, number

PARTS: Final = ("imports", "reading", "analysis", "output")
FILES: Final = (
    "torch/v100-ns-resolution",
    "torch/h100-vit",
    "torch/mi300x-ddp-resnet18-train",
    "serving/sglang-qwen3-8b-prefill-decode",
    "paddle/cpu-3.3.1/mlp_medium/cycle0",
)
_PACKAGES: Final = {
    **dict.fromkeys(("views", "replay", "advice", "compare", "plugins/flops", "base/operators", "ranks"), "analysis"),
    **dict.fromkeys(("output", "pages", "exporters"), "output"),
}
"""The part of each package. Other packages serve several parts, so their time belongs to the part of the caller."""
_REST, _INTERVAL_S = "start and exit", 0.001


def part(frame: FrameType | None) -> str:
    """Return the part that a call belongs to. Imports and reading come first, because any part may cause them."""
    nearest = ""
    while frame is not None:
        file, code = frame.f_code.co_filename, frame.f_code.co_name
        if code == "_find_and_load":
            return "imports"
        if file.endswith("perfkit_core/readers/load.py"):
            nearest = "reading"
        _, _, inside = file.rpartition("perfkit_core/")
        package, *parts = inside.split("/")
        nearest = nearest or _PACKAGES.get(package, "") or _PACKAGES.get("/".join((package, *parts[:1])), "")
        frame = frame.f_back
    return nearest or _REST


def run_here(arguments: list[str]) -> None:
    """Run ``perfkit``. Then write the seconds of each part as JSON to the standard error."""
    seconds: Counter[str] = Counter()
    last = time.perf_counter()

    def sample(_: int, frame: FrameType | None) -> None:
        nonlocal last
        now = time.perf_counter()
        seconds[part(frame)] += now - last
        last = now

    signal.signal(signal.SIGALRM, sample)
    signal.setitimer(signal.ITIMER_REAL, _INTERVAL_S, _INTERVAL_S)
    try:
        from perfkit_core.cli.main import main

        sys.argv[1:] = arguments
        main()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.write(2, f"\n{json.dumps(seconds)}\n".encode())


def timed(arguments: list[str]) -> dict[str, float]:
    """Return the seconds of a command, and of each part."""
    here = f"from benchmarks.command_parts import run_here; run_here({arguments!r})"
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", here], capture_output=True, text=True, check=True)
    total = time.perf_counter() - start
    parts = json.loads(done.stderr.strip().splitlines()[-1])
    found = {name: parts.get(name, 0.0) for name in PARTS}
    return found | {"seconds": total, _REST: total - sum(found.values())}


def section(size_mb: int, rounds: int, say: Callable[[str], None], names: Sequence[str] = FILES) -> Section:
    """Return a table for each command, with a row for each file."""
    from benchmarks import real_files
    from benchmarks.rounds import take_turns

    files = real_files.made(size_mb)
    with tempfile.TemporaryDirectory() as folder:
        page = str(Path(folder) / "report.html")
        commands: dict[str, Callable[[str], list[str]]] = {
            "summary": lambda file: ["summary", file],
            "report": lambda file: ["report", file, "-o", page],
            "advise": lambda file: ["advise", file],
            "compare": lambda file: ["compare", file, file],
        }
        contenders = [
            (f"{command} {name}", ["-m", "benchmarks.command_parts", "--one", *make(str(files[name]))], rounds)
            for command, make in commands.items() for name in names if name in files
        ]  # fmt: skip
        results = {result.name: result for result in take_turns(contenders, rounds, say)}
    columns = ("seconds", *PARTS, _REST)
    tables = []
    for command in commands:
        rows = []
        for name in names:
            result = results.get(f"{command} {name}")
            if result is not None and result.samples:
                cells = [statistics.median(each[column] for each in result.samples.values()) for column in columns]
                rows.append((name, *map(number, cells)))
        tables.append(Table(f"perfkit {command}, files of {size_mb} MB", ("file", "s", *columns[1:]), tuple(rows)))
    about = (__doc__ or "").split("\n\n")[1]
    return Section("The parts of commands", about, tuple(tables), (), {n: r.samples for n, r in results.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=argparse.REMAINDER, help="run perfkit once and print its parts as JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(timed(options.one)))
    else:
        from benchmarks import console, real_files

        console.show(section(real_files.SIZE_MB, options.rounds, console.progress))


if __name__ == "__main__":
    main()
