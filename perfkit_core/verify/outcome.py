"""What came of a verification: the runs, what they say, and the record for the ledger.

What does a measurement say of a change, and of the prediction?

============  =====================================================================================================
verified      the change costs less: the interval of the saving excludes 0, and the saving is above the noise floor
refuted       the same the other way; or neither, where a saving was predicted that is as surely not there: even the
              upper end of the measured interval, or the noise floor, is below the lower end of the prediction
cannot tell   all else: more rounds, or a quieter machine, may tell
============  =====================================================================================================

Whether the size was predicted well is a question of its own (``Fit``): one saving in five is outside of an interval
from p10 to p90 although all is well.
"""

from __future__ import annotations

import datetime
import hashlib
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from perfkit_core.system.machine import Machine, this_machine
from perfkit_core.verify import runs
from perfkit_core.verify.ledger import Outcome as Word
from perfkit_core.verify.ledger import Record
from perfkit_core.verify.prediction import Predicted
from perfkit_core.verify.runs import Side
from perfkit_core.verify.statistics import Measured, measured


class Verdict(Enum):
    """The value is what people read."""

    VERIFIED = "verified"
    REFUTED = "refuted"
    CANNOT_TELL = "cannot tell"


class Fit(Enum):
    """Where the measured saving lies beside the predicted interval."""

    AS_PREDICTED = "within the predicted interval"
    LESS = "less than predicted"
    MORE = "more than predicted"


def verdict(found: Measured, predicted: Predicted | None = None) -> Verdict:
    """Of the change, whether or not something was predicted."""
    if found.better:
        return Verdict.VERIFIED
    if found.worse or (predicted is not None and _surely_missing(found, predicted)):
        return Verdict.REFUTED
    return Verdict.CANNOT_TELL


def fit(found: Measured, predicted: Predicted) -> Fit:
    """Of the measured saving, by shares of the base."""
    if found.saving < predicted.saving_low:
        return Fit.LESS
    return Fit.MORE if found.saving > predicted.saving_high else Fit.AS_PREDICTED


def saving_error(found: Measured, predicted: Predicted) -> float | None:
    """(predicted − measured) / measured saving; None where nothing was saved."""
    return (predicted.saving - found.saving) / abs(found.saving) if found.saving else None


def step_error(found: Measured, predicted: Predicted) -> float:
    """(predicted − measured) / measured step with the change, the prediction scaled to the measured base."""
    return (1 - predicted.saving) / (1 - found.saving) - 1


def _surely_missing(found: Measured, predicted: Predicted) -> bool:
    return max(found.saving_high, found.noise) < predicted.saving_low


_WORDS: Final[dict[Verdict, Word]] = {
    Verdict.VERIFIED: "verified", Verdict.REFUTED: "refuted", Verdict.CANNOT_TELL: "abstained"
}  # fmt: skip
_LARGEST_SCRIPT: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything that ``perfkit verify`` says."""

    plan: runs.Plan
    machine: Machine
    date: str
    runs: tuple[runs.Run, ...]
    measured: Measured
    verdict: Verdict
    predicted: Predicted | None = None

    def frameworks(self, side: Side) -> tuple[str, ...]:
        """Of which the steps of a side were timed; none where a printed number counts."""
        return tuple(sorted({name for run in self.runs if run.side == side for name in run.frameworks}))


def verify(
    plan: runs.Plan, predicted: Predicted | None = None, report: Callable[[str], None] = lambda text: None
) -> Outcome:
    """Run both commands in turns and judge. ``report`` is told what runs. Raises CaptureError."""
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return judged(plan, date, runs.measure(plan, report), predicted)


def judged(plan: runs.Plan, date: str, found: Sequence[runs.Run], predicted: Predicted | None = None) -> Outcome:
    """The outcome of some runs."""
    base, change = ([run.value for run in found if run.side == side] for side in ("base", "change"))
    numbers = measured(base, change, plan.metric.higher_is_better)
    return Outcome(plan, this_machine(), date, tuple(found), numbers, verdict(numbers, predicted), predicted)


def record(outcome: Outcome) -> Record:
    """The line of the ledger."""
    found, predicted, plan, machine = outcome.measured, outcome.predicted, outcome.plan, outcome.machine
    return Record(
        date=outcome.date,
        outcome=_WORDS[outcome.verdict],
        base=plan.base,
        change=plan.change,
        base_hash=command_hash(plan.base),
        change_hash=command_hash(plan.change),
        perfkit=_version(),
        cpu=machine.cpu,
        cpus=machine.cpus,
        threads=machine.threads,
        metric=plan.metric.text,
        higher_is_better=plan.metric.higher_is_better,
        base_median=found.base,
        change_median=found.change,
        runs=found.base_runs + found.change_runs,
        saving_ratio=found.saving,
        saving_low_ratio=found.saving_low,
        saving_high_ratio=found.saving_high,
        noise_ratio=found.noise,
        saving_error=None if predicted is None else saving_error(found, predicted),
        step_error=None if predicted is None else step_error(found, predicted),
        **({} if predicted is None else asdict(predicted)),
    )


def command_hash(command: str) -> str:
    """Of the text, and of what the files that it names hold: 12 hexadecimal digits."""
    digest = hashlib.sha256(command.encode("utf-8", "surrogateescape"))
    for path in map(Path, _words(command)):
        try:
            if path.is_file() and path.stat().st_size <= _LARGEST_SCRIPT:
                digest.update(path.read_bytes())
        except (OSError, ValueError):  # no file, and no name of one
            continue
    return digest.hexdigest()[:12]


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # an open quote: the shell will say so
        return []


def _version() -> str | None:
    try:
        return version("perfkit")
    except PackageNotFoundError:
        return None
