"""Run the commands of base and change alternately, each time as a new process, and return one number for each run.

If a machine becomes slower (heat, other users), later runs take longer. So the order of a round is symmetric:
base-change-change-base or change-base-base-change, chosen at random. A drift then affects both sides equally."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

from perfkit_core.base.system import processes
from perfkit_core.errors import CaptureError, UsageError
from perfkit_core.measure.verify import step_times
from perfkit_core.measure.verify.metric import Finished, Metric
from perfkit_core.measure.verify.step_times import StepTimes
from perfkit_core.plugins.manager import get_plugins

Side = Literal["base", "change"]

SEED: Final = 20_201
_ROUNDS: Final[tuple[tuple[Side, ...], ...]] = (
    ("base", "change", "change", "base"),
    ("change", "base", "base", "change"),
)
PER_ROUND: Final = 2
"""Number of runs of each side in a round."""
ROUNDS: Final = 5
FEWEST_ROUNDS: Final = 3
"""Minimum number of rounds. With fewer, a difference would be reported for over 5% of pairs of equal commands."""
WARMUP: Final = 1
"""Number of runs of each command that are not measured. They fill file caches and compiler caches."""
_LONGEST_LINE: Final = 200


def order(rounds: int) -> list[tuple[Side, ...]]:
    """Return the order of the runs in each round. The seed is fixed, so every verification has the same order."""
    draw = random.Random(SEED)
    return [draw.choice(_ROUNDS) for _ in range(rounds)]


@dataclass(frozen=True, slots=True)
class Plan:
    """The commands of a verification, and how to measure them. ``timeout`` is in seconds per run."""

    base: str
    change: str
    metric: Metric
    rounds: int = ROUNDS
    warmup: int = WARMUP
    timeout: float | None = None

    def __post_init__(self) -> None:
        if self.rounds < FEWEST_ROUNDS:
            hint = f"give --rounds {FEWEST_ROUNDS} or more"
            raise UsageError(f"{self.rounds} rounds are too few to exclude chance", hint)


class Timed(NamedTuple):
    """The result of a run. ``value`` is in the unit of the metric (ns for the step time). ``frameworks`` are the
    frameworks whose steps were timed, and ``slowest`` is the slowest process; None if the metric is a printed number.
    """

    value: float
    frameworks: tuple[str, ...] = ()
    slowest: StepTimes | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A measured run. ``round`` counts from 1. The other fields are those of :class:`Timed`."""

    round: int
    side: Side
    value: float
    frameworks: tuple[str, ...] = ()
    slowest: StepTimes | None = None


def measure(plan: Plan, report: Callable[[str], None]) -> list[Run]:
    """Run both commands and return the measured runs in their order. Raises CaptureError if a command fails, or if it
    does not print the number of the metric."""
    commands: dict[Side, str] = {"base": plan.base, "change": plan.change}
    done = 0

    def once(side: Side) -> Timed:
        nonlocal done
        done += 1
        report(f"run {done} of {2 * (plan.warmup + PER_ROUND * plan.rounds)}: {side}")
        return run_once(commands[side], plan.metric, plan.timeout)

    with processes.ended_by_signals():
        for _ in range(plan.warmup):
            for side in commands:
                once(side)
        return [Run(at, side, *once(side)) for at, sides in enumerate(order(plan.rounds), start=1) for side in sides]


def run_once(command: str, metric: Metric, timeout: float | None = None) -> Timed:
    """Run a command once, as a new process, and return its value. Raises CaptureError as :func:`measure` does."""
    if not metric.is_step_time:
        return Timed(metric.printed(command, run(command, os.environ, timeout)))
    with tempfile.TemporaryDirectory(prefix="perfkit-") as name:
        folder = Path(name)
        frameworks = tuple(name for name, framework in get_plugins().frameworks().items() if framework.step_timer())
        run(command, step_times.environment(folder, frameworks, os.environ), timeout)
        timed = step_times.read(folder)
    slowest = metric.slowest(command, timed)
    return Timed(slowest.mean_ns, tuple(sorted({process.framework for process in timed if process.step_ns})), slowest)


def run(command: str, environment: Mapping[str, str], timeout: float | None = None) -> Finished:
    """Run a command in a shell, and end all processes that it leaves running. Raises CaptureError if the command fails
    or takes longer than ``timeout`` seconds. The error of a failed command quotes the last line that it printed."""
    # The output goes to files, because a process that is still running would keep a pipe open.
    with tempfile.TemporaryDirectory(prefix="perfkit-") as folder:
        files = Path(folder, "out"), Path(folder, "err")
        with files[0].open("wb") as out, files[1].open("wb") as err:
            shell = "/bin/sh", "-c", command
            with processes.group(shell, env=dict(environment), stdout=out, stderr=err) as process:
                try:
                    code = process.wait(timeout)
                except subprocess.TimeoutExpired:
                    text = f"{command!r} still runs after {timeout:g} s"
                    raise CaptureError(text, "give a longer --timeout") from None
        finished = Finished(*(file.read_text(encoding="utf-8", errors="replace") for file in files))
    if not code:
        return finished
    lines = [line.strip() for text in (finished.out, finished.err) for line in text.splitlines() if line.strip()]
    last = lines[-1][:_LONGEST_LINE] if lines else "it printed nothing"
    ending = f"failed with exit code {code}"
    if not 0 < code <= 128:
        with contextlib.suppress(ValueError):
            # The exit code is minus the signal that ended the shell, or 128 plus the signal that ended its command.
            ending = f"was ended by {signal.Signals(-code if code < 0 else code - 128).name}"
    raise CaptureError(f"{command!r} {ending}: {last}", "run the command by itself first")
