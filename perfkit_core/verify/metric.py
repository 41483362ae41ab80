"""The metric of a verification: the time of the steps, or a number that the command prints."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.errors import CaptureError, UsageError
from perfkit_core.verify.step_times import StepTimes

STEP_TIME: Final = "step_time"
"""The metric for which the command prints nothing."""
WARMUP_STEPS: Final = 10
"""Steps left out at the start of each process, at most half of its steps."""
_NUMBER: Final = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
_SEPARATORS: Final = ",.:_'’\u00a0\u202f"
"""Characters that separate thousands, decimals or minutes inside a number."""
_AFTER: Final = re.compile(rf"(?:[{_SEPARATORS}]\d+)+")
_BEFORE: Final = re.compile(rf"(?:\d+[{_SEPARATORS}])+$")


@dataclass(frozen=True, slots=True)
class Finished:
    """What a command that succeeded has printed."""

    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Metric:
    """``text`` is :data:`STEP_TIME`, a regular expression with one group, or a name before a number.
    ``higher_is_better``: a rate, such as samples a second."""

    text: str = STEP_TIME
    higher_is_better: bool = False
    warmup_steps: int = WARMUP_STEPS

    def __post_init__(self) -> None:
        if self.text == STEP_TIME and self.higher_is_better:
            raise UsageError("--higher-is-better does not apply to step times", "remove it, or name a --metric")
        if not self.is_step_time:
            self.pattern()

    @property
    def is_step_time(self) -> bool:
        """Whether steps are timed; otherwise a printed number is read."""
        return self.text == STEP_TIME

    def pattern(self) -> re.Pattern[str]:
        """Return the pattern of the printed number. Raises UsageError."""
        try:
            given = re.compile(self.text, re.MULTILINE)
        except re.error as error:
            if not re.fullmatch(r"[^()\[\]]+", self.text):
                raise UsageError(f"--metric {self.text!r} is not a regular expression: {error}") from None
            given = re.compile("")
        if given.groups > 1:
            raise UsageError(f"--metric {self.text!r} has {given.groups} groups", "keep one; (?:…) does not capture")
        if given.groups:
            return given
        return re.compile(rf"(?<![\w.]){re.escape(self.text.strip())}(?!\w)[^\w\n.+-]*{_NUMBER}")

    def printed(self, command: str, finished: Finished) -> float:
        """Return the last such number that a command printed, on stdout or else on stderr. Raises CaptureError."""
        pattern = self.pattern()
        matches = [*pattern.finditer(finished.out)] or [*pattern.finditer(finished.err)]
        if not matches:
            hint = "a name is followed by a number as in 'step_ms: 12.3'; a regular expression has one group"
            raise CaptureError(f"{command!r} printed nothing that matches --metric {self.text!r}", hint)
        text = _whole_number(command, matches[-1])
        try:
            number = float(text)
        except ValueError:
            raise CaptureError(f"{command!r} printed {text!r}, which is not a number", "check --metric") from None
        if not 0 < number < math.inf:
            raise CaptureError(f"{command!r} printed {text}; only positive numbers can be compared", "check --metric")
        return number

    def step_ns(self, command: str, processes: Sequence[StepTimes]) -> float:
        """Return the mean step of a run in ns, of the slowest of several processes, since the others wait for it. The
        mean, because data loader workers deliver in bursts that a median does not show. Raises CaptureError."""
        trained = [process.step_ns for process in processes if process.step_ns]
        if not trained:
            raise CaptureError(
                f"no steps seen in {command!r}: no optimizer was stepped twice in a Python process with perfkit",
                "print a number in the command and name it with --metric",
            )
        return max(float(np.mean(step_ns[min(self.warmup_steps, len(step_ns) // 2) :])) for step_ns in trained)


def _whole_number(command: str, match: re.Match[str]) -> str:
    """Return what the group matched. Raises CaptureError if it was cut out of a longer number such as ``1,010``. A
    pattern that goes on beyond its group says itself where the number ends."""
    number, line = match[1] or "", match.string
    before = _BEFORE.search(line[: match.start(1)]) if match.start() == match.start(1) else None
    after = _AFTER.match(line, match.end(1)) if match.end() == match.end(1) and number[-1:].isdigit() else None
    if before or after:
        printed = f"{before[0] if before else ''}{number}{after[0] if after else ''}"
        hint = "print it without separators, with a point before decimals: 1010 or 1.5"
        raise CaptureError(f"{command!r} printed {printed}, which may be one number or several", hint)
    return number
