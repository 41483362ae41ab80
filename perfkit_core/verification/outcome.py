"""What came of a verification: the runs, what they say, and the record for the ledger."""

from __future__ import annotations

import datetime
import hashlib
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from perfkit_core.machine import Machine, this_machine
from perfkit_core.verification import runs, verdict
from perfkit_core.verification.ledger import Outcome as Word
from perfkit_core.verification.ledger import Record
from perfkit_core.verification.prediction import Predicted
from perfkit_core.verification.rounds import Side
from perfkit_core.verification.statistics import Measured, measured
from perfkit_core.verification.verdict import Verdict

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
    return Outcome(plan, this_machine(), date, tuple(found), numbers, verdict.verdict(numbers, predicted), predicted)


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
        saving_error=None if predicted is None else verdict.saving_error(found, predicted),
        step_error=None if predicted is None else verdict.step_error(found, predicted),
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
