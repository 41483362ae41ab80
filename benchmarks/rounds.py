"""Measure several programs in turn. Each measurement is a new process. The programs alternate, so that other load on
the machine affects all of them alike."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.inputs import folder
from benchmarks.results import number

ROOT = Path(__file__).resolve().parent.parent
LONGEST_S = 1800
"""Time limit of a process, in seconds. A process that exceeds it is ended, and the table says so."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one program: a dict of numbers for each round, or the reason why there are none."""

    name: str
    samples: dict[int, dict[str, float]]
    reason: str = ""

    def median(self, key: str) -> float | None:
        """Return the median over the rounds, or None if nothing was measured."""
        values = [sample[key] for sample in self.samples.values()]
        return statistics.median(values) if values else None

    def ratio(self, other: Result, key: str = "seconds") -> float | None:
        """Return the ratio ``self`` / ``other``: the median over the rounds that both have."""
        common = self.samples.keys() & other.samples.keys()
        ratios = [self.samples[at][key] / other.samples[at][key] for at in common if other.samples[at][key]]
        return statistics.median(ratios) if ratios else None


Contender = tuple[str, list[str], int]
"""One measured program: (name, arguments of python, maximum number of rounds)"""


def costs(result: Result) -> tuple[str, ...]:
    """Return a table row: name, seconds, CPU seconds and peak memory in MB."""
    seconds, cpu, peak = (result.median(key) for key in ("seconds", "cpu_seconds", "peak_bytes"))
    if seconds is None or cpu is None or peak is None:
        return result.name, "-", "-", "-"
    return result.name, number(seconds), number(cpu), number(peak / 1e6)


def reasons(results: Sequence[Result]) -> str:
    """Return why programs have no numbers, or "" if all have numbers."""
    return "; ".join(f"{result.name}: {result.reason}" for result in results if result.reason)


def take_turns(contenders: Sequence[Contender], rounds: int, say: Callable[[str], None]) -> list[Result]:
    """Run all programs in turn, round by round. Each process prints its numbers as JSON on its last line."""
    samples: dict[str, dict[int, dict[str, float]]] = {name: {} for name, _, _ in contenders}
    failed: dict[str, str] = {}
    for at in range(rounds):
        for name, arguments, most in contenders:
            if at >= most or name in failed:
                continue
            found = run(arguments)
            if isinstance(found, str):
                failed[name] = found
                say(f"{name}: {found}")
            else:
                samples[name][at] = found
                say(f"round {at + 1}: {name}" + (f": {found['seconds']:.2f} s" if "seconds" in found else ""))
    return [Result(name, samples[name], failed.get(name, "")) for name, _, _ in contenders]


def run(arguments: Sequence[str]) -> Any:
    """Run a Python process. Return the JSON on its last line of output. If it fails, return the reason as text."""
    command = [sys.executable, *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST_S, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        return f"ended after {LONGEST_S} s"
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return (
            lines[-1].replace(f"{folder()}/", "")[:200]
            if lines
            else f"ended with code {done.returncode} (out of memory?)"
        )
    return json.loads(done.stdout.strip().splitlines()[-1])
