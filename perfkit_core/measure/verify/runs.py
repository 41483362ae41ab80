"""Run the commands of base and change alternately, each time as a new process, and return one number for each run: the
step time, or a number that the command prints.

If a machine becomes slower (heat, other users), later runs take longer. So the order of a round is symmetric:
base-change-change-base or change-base-base-change, chosen at random. A drift then affects both sides equally."""

from __future__ import annotations

import contextlib
import math
import os
import random
import re
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, NamedTuple

from perfkit_core.base.system import processes
from perfkit_core.errors import CaptureError, UsageError
from perfkit_core.measure.verify import step_times
from perfkit_core.measure.verify.step_times import StepTimes
from perfkit_core.plugins.manager import get_plugins

STEP_TIME: Final = "step_time"
WARMUP_STEPS: Final = 10
"""Number of steps to skip at the start of each process. At most half of the steps of a process are skipped."""
_NUMBER: Final = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
_SEPARATORS: Final = ",.:_'’\u00a0\u202f"
"""Characters that may occur inside a printed number, as in ``1,010``, ``1.5`` or ``02:30``."""
_AFTER: Final = re.compile(rf"(?:[{_SEPARATORS}]\d+)+")
_BEFORE: Final = re.compile(rf"(?:\d+[{_SEPARATORS}])+$")


@dataclass(frozen=True, slots=True)
class Finished:
    """The output of a command that succeeded."""

    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Metric:
    """The metric of a verification: the step time (``text`` is :data:`STEP_TIME`) or a number that the command prints.
    For a printed number, ``text`` is the name before the number, or a regular expression whose group is the number."""

    text: str = STEP_TIME
    higher_is_better: bool = False  # True for rates, such as samples per second.
    warmup_steps: int = WARMUP_STEPS

    def __post_init__(self) -> None:
        if self.text == STEP_TIME and self.higher_is_better:
            raise UsageError("--higher-is-better does not apply to step times", "remove it, or name a --metric")
        if not self.is_step_time:
            self.pattern()

    @property
    def is_step_time(self) -> bool:
        return self.text == STEP_TIME

    def pattern(self) -> re.Pattern[str]:
        """Return the pattern that finds the printed number. Raises UsageError if ``text`` is not a valid pattern."""
        try:
            pattern = re.compile(self.text, re.MULTILINE)
        except (re.error, RecursionError) as error:
            if not re.fullmatch(r"[^()\[\]]+", self.text):
                raise UsageError(f"--metric {self.text!r} is not a regular expression: {error}") from None
            pattern = re.compile("")
        if pattern.groups > 1:
            hint = "keep one group, and write the others as (?:…)"
            raise UsageError(f"--metric {self.text!r} has {pattern.groups} groups", hint)
        if pattern.groups:
            return pattern
        return re.compile(rf"(?<![\w.]){re.escape(self.text.strip())}(?!\w)[^\w\n.+-]*{_NUMBER}")

    def printed(self, command: str, finished: Finished) -> float:
        """Return the last number on stdout that the pattern matches, or else the last one on stderr.

        Raises CaptureError if there is no such number, or if it may be part of a longer number such as ``1,010``."""
        pattern = self.pattern()
        matches = [*pattern.finditer(finished.out)] or [*pattern.finditer(finished.err)]
        if not matches:
            hint = "give a name that is printed before the number ('step_ms: 12.3'), or a pattern with one group"
            raise CaptureError(f"{command!r} printed nothing that matches --metric {self.text!r}", hint)
        match = matches[-1]
        text, line = match[1] or "", match.string
        # Text in the pattern before the group fixes where the number begins. Text after the group fixes where it ends.
        before = _BEFORE.search(line[: match.start(1)]) if match.start() == match.start(1) else None
        after = _AFTER.match(line, match.end(1)) if match.end() == match.end(1) and text[-1:].isdigit() else None
        if before or after:
            longer = f"{before[0] if before else ''}{text}{after[0] if after else ''}"
            hint = "print the number without separators, with a point before decimals: 1010 or 1.5"
            raise CaptureError(f"{command!r} printed {longer}, which may be one number or several", hint)
        try:
            number = float(text)
        except ValueError:
            raise CaptureError(f"{command!r} printed {text!r}, which is not a number", "check --metric") from None
        if not 0 < number < math.inf:
            problem = f"{command!r} printed {text}, but only positive numbers can be compared"
            raise CaptureError(problem, "check --metric")
        return number

    def slowest(self, command: str, processes: Sequence[StepTimes]) -> StepTimes:
        """Return the steps of the process with the largest mean step, without its warm-up steps. The other processes
        wait for this one. Raises CaptureError if no process has steps."""
        trained = [
            replace(process, step_ns=process.step_ns[min(self.warmup_steps, len(process.step_ns) // 2) :])
            for process in processes
            if process.step_ns
        ]
        if not trained:
            raise CaptureError(
                f"no steps were recorded in {command!r}: a Python process with perfkit installed "
                "must update its optimizer at least twice",
                "perfkit verify --metric compares a number that the command prints",
            )
        return max(trained, key=lambda process: process.mean_ns)


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
