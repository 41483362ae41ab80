"""The metric that ``perfkit verify`` compares: the step time, or a number that the command prints."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from perfkit_core.errors import CaptureError, UsageError
from perfkit_core.measure.verify.step_times import StepTimes

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
