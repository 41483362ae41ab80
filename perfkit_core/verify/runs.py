"""Runs both commands in turns, each time as a fresh process, and collects one number of each run.

In which order are the commands run? In rounds that balance drift: each half of a round mirrors the other.

A machine that grows slower (heat, other people) makes what is run later look worse. In a round of base, change, change,
base a steady drift hits both alike; which of the two begins is drawn for every round.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from perfkit_core.errors import UsageError
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.verify import step_times
from perfkit_core.verify.metric import Metric
from perfkit_core.verify.processes import ended_by_signals, run

Side = Literal["base", "change"]

SEED: Final = 20_201
"""The same order in every verification, so that two of them compare."""
_ROUNDS: Final[tuple[tuple[Side, ...], ...]] = (
    ("base", "change", "change", "base"),
    ("change", "base", "base", "change"),
)
PER_ROUND: Final = 2
"""Runs of each side in a round."""


def order(rounds: int) -> list[tuple[Side, ...]]:
    """The sides of each round, in the order in which they run."""
    draw = random.Random(SEED)
    return [draw.choice(_ROUNDS) for _ in range(rounds)]


ROUNDS: Final = 5
FEWEST_ROUNDS: Final = 3
"""With fewer, equal commands would get a verdict more often than in one of twenty times."""
WARMUP: Final = 1
"""Runs of each command that do not count: they fill the caches of files and compilers."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. ``timeout`` in seconds, for each run."""

    base: str
    change: str
    metric: Metric
    rounds: int = ROUNDS
    warmup: int = WARMUP
    timeout: float | None = None

    def __post_init__(self) -> None:
        if self.rounds < FEWEST_ROUNDS:
            raise UsageError(f"{self.rounds} rounds tell nothing from chance", f"give {FEWEST_ROUNDS} or more")

    @property
    def count(self) -> int:
        """Runs in all."""
        return 2 * (self.warmup + PER_ROUND * self.rounds)


@dataclass(frozen=True, slots=True)
class Run:
    """One run that counts: its place among them, the side, its number in the metric's unit (ns for steps), and the
    frameworks whose steps were timed."""

    round: int
    side: Side
    value: float
    frameworks: tuple[str, ...] = ()


def measure(plan: Plan, report: Callable[[str], None]) -> list[Run]:
    """All runs that count, in their order. Raises CaptureError where a command fails or its number is missing."""
    commands: dict[Side, str] = {"base": plan.base, "change": plan.change}
    done = 0

    def once(side: Side) -> tuple[float, tuple[str, ...]]:
        nonlocal done
        done += 1
        report(f"run {done} of {plan.count}: {side}")
        return _measured(commands[side], plan.metric, plan.timeout)

    with ended_by_signals():
        for _ in range(plan.warmup):
            for side in commands:
                once(side)
        return [Run(at, side, *once(side)) for at, sides in enumerate(order(plan.rounds), start=1) for side in sides]


def number(command: str, metric: Metric, timeout: float | None = None) -> float:
    """Run a command once and return its number. Raises CaptureError."""
    return _measured(command, metric, timeout)[0]


def _measured(command: str, metric: Metric, timeout: float | None) -> tuple[float, tuple[str, ...]]:
    """The number, and of which frameworks."""
    if not metric.is_step_time:
        return metric.printed(command, run(command, os.environ, timeout)), ()
    with tempfile.TemporaryDirectory(prefix="perfkit-") as folder:
        run(command, _timing(Path(folder)), timeout)
        found = step_times.read(Path(folder))
        return metric.step_ns(command, found), tuple(sorted({one.framework for one in found if one.step_ns}))


def _timing(folder: Path) -> Mapping[str, str]:
    return step_times.environment(folder, tuple(get_plugins().step_timers()), os.environ)
