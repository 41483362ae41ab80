"""Run both commands alternately, each time as a new process, and collect one number of each run.

A machine that becomes slower (heat, other users) makes what runs later look worse. Runs are in rounds of base, change,
change, base or the reverse, drawn for each round, so that a steady drift affects both sides alike.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Literal

from perfkit_core.errors import CaptureError, UsageError
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.verify import step_times
from perfkit_core.verify.metric import Finished, Metric

Side = Literal["base", "change"]

SEED: Final = 20_201
"""The order of the runs is the same in every verification."""
_ROUNDS: Final[tuple[tuple[Side, ...], ...]] = (
    ("base", "change", "change", "base"),
    ("change", "base", "base", "change"),
)
PER_ROUND: Final = 2
"""Runs of each side in a round."""
ROUNDS: Final = 5
FEWEST_ROUNDS: Final = 3
"""With fewer, equal commands would be told apart more often than once in twenty times."""
WARMUP: Final = 1
"""Runs of each command that do not count; they fill the caches of files and compilers."""
PATIENCE_SECONDS: Final = 5.0
"""Time for processes to end after SIGTERM; a launcher ends its own children in that time."""
_POLL_SECONDS: Final = 0.01
_LONGEST_LINE: Final = 200


def order(rounds: int) -> list[tuple[Side, ...]]:
    """Return the sides of each round, in the order in which they run."""
    draw = random.Random(SEED)
    return [draw.choice(_ROUNDS) for _ in range(rounds)]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. ``timeout``: seconds for each run."""

    base: str
    change: str
    metric: Metric
    rounds: int = ROUNDS
    warmup: int = WARMUP
    timeout: float | None = None

    def __post_init__(self) -> None:
        if self.rounds < FEWEST_ROUNDS:
            raise UsageError(f"{self.rounds} rounds are too few to exclude chance", f"give {FEWEST_ROUNDS} or more")

    @property
    def count(self) -> int:
        return 2 * (self.warmup + PER_ROUND * self.rounds)


@dataclass(frozen=True, slots=True)
class Run:
    """One run: its round, its side, its number in the unit of the metric (steps: ns), and the frameworks timed."""

    round: int
    side: Side
    value: float
    frameworks: tuple[str, ...] = ()


def measure(plan: Plan, report: Callable[[str], None]) -> list[Run]:
    """Return all runs that count, in their order. Raises CaptureError if a command fails or prints no number."""
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
    if not metric.is_step_time:
        return metric.printed(command, run(command, os.environ, timeout)), ()
    with tempfile.TemporaryDirectory(prefix="perfkit-") as name:
        folder = Path(name)
        frameworks = tuple(get_plugins().step_timers())
        run(command, step_times.environment(folder, frameworks, os.environ), timeout)
        processes = step_times.read(folder)
    return metric.step_ns(command, processes), tuple(sorted({one.framework for one in processes if one.step_ns}))


def run(command: str, environment: Mapping[str, str], timeout: float | None = None) -> Finished:
    """Run a command in a shell with a process group of its own, and end all processes that it leaves running. Raises
    CaptureError if it fails, with the last line that it printed, or if it takes longer than ``timeout`` seconds."""
    # output goes to files: a process that is left behind would keep a pipe open
    with tempfile.TemporaryDirectory(prefix="perfkit-") as folder:
        files = Path(folder, "out"), Path(folder, "err")
        with files[0].open("wb") as out, files[1].open("wb") as err:
            code = _exit_code(command, environment, out, err, timeout)
        finished = Finished(*(file.read_text(encoding="utf-8", errors="replace") for file in files))
    if not code:
        return finished
    lines = [line.strip() for text in (finished.out, finished.err) for line in text.splitlines() if line.strip()]
    last = lines[-1][:_LONGEST_LINE] if lines else "it printed nothing"
    raise CaptureError(f"{command!r} {_ending(code)}: {last}", "run it by hand first")


def _exit_code(
    command: str, environment: Mapping[str, str], out: IO[bytes], err: IO[bytes], timeout: float | None
) -> int:
    process = None
    try:
        with _deferred_signals():
            process = subprocess.Popen(
                command, shell=True, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=dict(environment),
                start_new_session=True,
            )  # fmt: skip
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        raise CaptureError(f"{command!r} still runs after {timeout:g} s", "give a longer --timeout") from None
    finally:
        if process is not None:
            _end_group(process)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End all processes of the group: ask, wait, and kill what is left. The shell itself may have ended before."""
    with contextlib.suppress(OSError):  # no process is left
        os.killpg(process.pid, signal.SIGTERM)
        last = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < last:
            process.poll()
            os.killpg(process.pid, 0)
            time.sleep(_POLL_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def _deferred_signals() -> Iterator[None]:
    """Handle signals at the end of the block. An exception raised by a handler while ``Popen`` waits for its child to
    start would lose the child: it runs, and its number is unknown. Handlers are replaced, not blocked, because a child
    inherits blocked signals."""
    if threading.current_thread() is not threading.main_thread():  # where no handler runs
        yield
        return
    pending: list[int] = []
    numbers = [
        number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None
    ]
    before = {number: handler for number in numbers if callable(handler := signal.getsignal(number))}
    for number in before:
        signal.signal(number, lambda number, frame: pending.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in pending:
            signal.raise_signal(number)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise SystemExit in the block, so that running commands are ended."""
    if threading.current_thread() is not threading.main_thread():  # where no handlers can be set
        yield
        return

    def leave(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    numbers = [number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None]
    before = {number: signal.getsignal(number) for number in numbers}
    ours = [number for number in numbers if before[number] is signal.SIG_DFL]
    try:
        for number in ours:
            signal.signal(number, leave)
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


def _ending(code: int) -> str:
    """A shell ends with 128 + the signal that ended its command; the code of a shell ended by one is negative."""
    number = -code if code < 0 else code - 128
    if code < 0 or code > 128:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(number).name}"
    return f"failed with exit code {code}"
