"""Which number of a run counts: the time of its steps, or one that it prints."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.errors import CaptureError, UsageError
from perfkit_core.verify.processes import Finished
from perfkit_core.verify.step_times import StepTimes

STEP_TIME: Final = "step_time"
"""The metric that needs nothing to be printed."""
WARMUP_STEPS: Final = 10
"""Steps of each process that are left out; of a short one at most half."""
_NUMBER: Final = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
_SEPARATORS: Final = ",.:_'’\u00a0\u202f"
"""What may stand inside a number: of thousands, of decimals, of minutes."""
_BEHIND: Final = re.compile(rf"(?:[{_SEPARATORS}]\d+)+")
_BEFORE: Final = re.compile(rf"(?:\d+[{_SEPARATORS}])+$")


@dataclass(frozen=True, slots=True)
class Metric:
    """``text`` is :data:`STEP_TIME`, a regular expression with one group, or a name before a number.

    ``higher_is_better``: a rate, such as samples a second.
    """

    text: str = STEP_TIME
    higher_is_better: bool = False
    warmup_steps: int = WARMUP_STEPS

    def __post_init__(self) -> None:
        if self.text == STEP_TIME and self.higher_is_better:
            raise UsageError("a longer step is not better", "leave --higher-is-better, or name a --metric")
        if not self.is_step_time:
            self.pattern()

    @property
    def is_step_time(self) -> bool:
        """Whether steps are timed, rather than a number found in what is printed."""
        return self.text == STEP_TIME

    def pattern(self) -> re.Pattern[str]:
        """What finds the printed number. Raises UsageError."""
        try:
            given = re.compile(self.text, re.MULTILINE)
        except re.error as error:
            if not re.fullmatch(r"[^()\[\]]+", self.text):
                raise UsageError(f"--metric {self.text!r} is no regular expression: {error}") from None
            given = re.compile("")
        if given.groups > 1:
            raise UsageError(f"--metric {self.text!r} has {given.groups} groups", "leave one: (?:…) groups nothing")
        if given.groups:
            return given
        return re.compile(rf"(?<![\w.]){re.escape(self.text.strip())}(?!\w)[^\w\n.+-]*{_NUMBER}")

    def printed(self, command: str, finished: Finished) -> float:
        """The last such number that a command printed, on stdout or else on stderr. Raises CaptureError."""
        pattern = self.pattern()
        found = [*pattern.finditer(finished.out)] or [*pattern.finditer(finished.err)]
        if not found:
            hint = "a name is followed by a number as in 'step_ms: 12.3'; a regular expression has one group"
            raise CaptureError(f"{command!r} printed nothing that --metric {self.text!r} finds", hint)
        return _positive(command, _whole(command, found[-1]))

    def step_ns(self, command: str, found: Sequence[StepTimes]) -> float:
        """Mean step of a run in ns, which is what its steps took together: loader workers deliver in bursts, of which a
        median step shows nothing. Of several processes that of the slowest, for which the others wait."""
        trained = [one for one in found if one.step_ns]
        if not trained:
            raise CaptureError(
                f"no step was seen in {command!r}: nothing stepped an optimizer twice in a Python that has perfkit",
                "let it print a number, and name that with --metric",
            )
        return max(_mean_ns(one.step_ns, self.warmup_steps) for one in trained)


def _mean_ns(step_ns: Sequence[int], warmup: int) -> float:
    return float(np.mean(step_ns[min(warmup, len(step_ns) // 2) :]))


def _whole(command: str, found: re.Match[str]) -> str:
    """What the group found, unless it was cut out of a longer number. A pattern that goes on beyond its group says
    itself where the number ends."""
    number, line = found[1] or "", found.string
    before = _BEFORE.search(line[: found.start(1)]) if found.start() == found.start(1) else None
    behind = _BEHIND.match(line, found.end(1)) if found.end() == found.end(1) and number[-1:].isdigit() else None
    if before or behind:
        written = f"{before[0] if before else ''}{number}{behind[0] if behind else ''}"
        hint = "print it without separators, with a point before decimals: 1010 or 1.5"
        raise CaptureError(f"{command!r} printed {written}, which may be one number or several", hint)
    return number


def _positive(command: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise CaptureError(f"{command!r} printed {text!r}, which is no number", "check --metric") from None
    if not 0 < number < math.inf:
        raise CaptureError(f"{command!r} printed {text}, and only numbers above 0 can be compared", "check --metric")
    return number
