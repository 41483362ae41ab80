"""The outcome of a verification: the verdict, the report, and the record for the ledger. The first verdict that
applies is taken:

- verified: the change helps, and the saving lies in the predicted interval from p10 to p90. It helps if the interval of
  the saving lies above 0, and the saving is above the noise floor.
- helps, more than predicted; helps, less than predicted: the saving lies outside of the predicted interval. This
  happens to one saving in five even with perfect predictions.
- helps: nothing was predicted, or something was predicted for another framework.
- slower: the change costs time, by the same conditions in the opposite direction.
- refuted: the lower end of the predicted interval is above the noise floor and above the measured interval.
- no change within noise: the saving or loss is at most the noise floor.
- cannot tell: anything else. More rounds or a quieter machine may decide."""

from __future__ import annotations

import datetime
import hashlib
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perfkit_core.base.language.units import format_count, format_duration, format_ratio
from perfkit_core.base.system.machine import Machine, this_machine
from perfkit_core.measure.calibration.equal_runs import EqualRuns, file
from perfkit_core.measure.verify import ledger, prediction, runs
from perfkit_core.measure.verify.runs import Side
from perfkit_core.measure.verify.statistics import LEVEL, Measured, measured

if TYPE_CHECKING:
    from perfkit_core.trace.model.report_data import Report


class Verdict(Enum):
    VERIFIED = "verified"
    MORE = "helps, more than predicted"
    LESS = "helps, less than predicted"
    HELPS = "helps"
    SLOWER = "slower"
    REFUTED = "refuted"
    SAME = "no change within noise"
    CANNOT_TELL = "cannot tell"

    @property
    def outcome(self) -> ledger.Outcome:
        """The outcome in the ledger."""
        return _LEDGER_OUTCOMES[self]


class Fit(Enum):
    AS_PREDICTED = "within the predicted interval"
    LESS = "less than predicted"
    MORE = "more than predicted"


def verdict(result: Measured, predicted: prediction.Predicted | None = None) -> Verdict:
    if result.better:
        return Verdict.HELPS if predicted is None else _HELPS[fit(result, predicted)]
    if result.worse:
        return Verdict.SLOWER
    if predicted is not None and max(result.saving_high, result.noise) < predicted.saving_low:
        return Verdict.REFUTED
    return Verdict.SAME if abs(result.saving) <= result.noise else Verdict.CANNOT_TELL


def fit(result: Measured, predicted: prediction.Predicted) -> Fit:
    if result.saving < predicted.saving_low:
        return Fit.LESS
    return Fit.MORE if result.saving > predicted.saving_high else Fit.AS_PREDICTED


def saving_error(result: Measured, predicted: prediction.Predicted) -> float | None:
    """Return the relative error of the predicted saving: (predicted − measured) / |measured|; None if the measured
    saving is 0."""
    return (predicted.saving - result.saving) / abs(result.saving) if result.saving else None


def step_error(result: Measured, predicted: prediction.Predicted) -> float:
    """Return the relative error of the predicted step time, after scaling the prediction to the measured base."""
    return (1 - predicted.saving) / (1 - result.saving) - 1


_HELPS: Final = {Fit.AS_PREDICTED: Verdict.VERIFIED, Fit.MORE: Verdict.MORE, Fit.LESS: Verdict.LESS}
_LEDGER_OUTCOMES: Final[dict[Verdict, ledger.Outcome]] = {
    Verdict.VERIFIED: "verified", Verdict.MORE: "helps", Verdict.LESS: "helps", Verdict.HELPS: "helps",
    Verdict.SLOWER: "refuted", Verdict.REFUTED: "refuted", Verdict.SAME: "abstained", Verdict.CANNOT_TELL: "abstained",
}  # fmt: skip
_LARGEST_SCRIPT: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class Outcome:
    plan: runs.Plan
    machine: Machine
    date: str
    runs: tuple[runs.Run, ...]
    measured: Measured
    verdict: Verdict
    predicted: prediction.Predicted | None = None

    def frameworks(self, side: Side) -> tuple[str, ...]:
        """Return the frameworks whose steps were timed; empty if the metric is a printed number."""
        return tuple(sorted({name for run in self.runs if run.side == side for name in run.frameworks}))


def verify(
    plan: runs.Plan, predicted: prediction.Predicted | None = None, report: Callable[[str], None] = lambda text: None
) -> Outcome:
    """Measure both commands and return the outcome. For a progress display, ``report`` is called with a text about each
    run. Raises CaptureError if a command fails."""
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return judged(plan, date, runs.measure(plan, report), predicted)


def judged(
    plan: runs.Plan, date: str, measurements: Sequence[runs.Run], predicted: prediction.Predicted | None = None
) -> Outcome:
    base, change = ([run.value for run in measurements if run.side == side] for side in ("base", "change"))
    result = measured(base, change, plan.metric.higher_is_better)
    frameworks = {name for run in measurements for name in run.frameworks}
    applies = predicted is not None and (predicted.framework is None or frameworks <= {predicted.framework})
    conclusion = verdict(result, predicted if applies else None)
    return Outcome(plan, this_machine(), date, tuple(measurements), result, conclusion, predicted)


def record(outcome: Outcome) -> ledger.Record:
    result, predicted, plan, machine = outcome.measured, outcome.predicted, outcome.plan, outcome.machine
    try:
        installed: str | None = version("perfkit")
    except PackageNotFoundError:
        installed = None
    return ledger.Record(
        date=outcome.date,
        outcome=outcome.verdict.outcome,
        base=plan.base,
        change=plan.change,
        base_hash=command_hash(plan.base),
        change_hash=command_hash(plan.change),
        perfkit=installed,
        cpu=machine.cpu,
        cpus=machine.cpus,
        threads=machine.threads,
        metric=plan.metric.text,
        higher_is_better=plan.metric.higher_is_better,
        base_median=result.base,
        change_median=result.change,
        runs=result.base_runs + result.change_runs,
        saving_ratio=result.saving,
        saving_low_ratio=result.saving_low,
        saving_high_ratio=result.saving_high,
        noise_ratio=result.noise,
        saving_error=None if predicted is None else saving_error(result, predicted),
        step_error=None if predicted is None else step_error(result, predicted),
        **({} if predicted is None else asdict(predicted)),
    )


def command_hash(command: str) -> str:
    """Return a hash of a command and of the contents of the files in its arguments, as 12 hexadecimal digits."""
    digest = hashlib.sha256(command.encode("utf-8", "surrogateescape"))
    try:
        words = shlex.split(command)
    except ValueError:  # a quote is not closed; the shell reports this
        words = []
    for path in map(Path, words):
        try:
            if path.is_file() and path.stat().st_size <= _LARGEST_SCRIPT:
                digest.update(path.read_bytes())
        except (OSError, ValueError):  # the argument is not the name of a readable file
            continue
    return digest.hexdigest()[:12]


def report(outcome: Outcome, stored: Mapping[str, EqualRuns] | None = None) -> Report:
    """Return the report. Its sections are ``sides``, ``prediction`` (if there was a prediction) and ``runs``.
    ``stored`` are the records of how much equal runs differ, by side."""
    import msgspec
    import pandas as pd

    from perfkit_core.trace.model.report_data import Report, Section

    result, predicted, plan = outcome.measured, outcome.predicted, outcome.plan
    is_step_time = plan.metric.is_step_time
    value = "step_ns" if is_step_time else "value"
    exact: type | Callable[[float], int] = round if is_step_time else float

    rows: list[tuple[Any, ...]] = []
    for side, command, median in (("base", plan.base, result.base), ("change", plan.change, result.change)):
        values = [run.value for run in outcome.runs if run.side == side]
        rows.append((side, len(values), exact(median), exact(min(values)), exact(max(values)), command))
    columns = ["side", "runs", f"median_{value}", f"min_{value}", f"max_{value}", "command"]
    metric = (
        "the mean step time, without a profiler" if is_step_time else f"the number that {plan.metric.text!r} matches"
    )
    note = f"Each run has one value: {metric}."
    sections = [Section("sides", "Base and change", pd.DataFrame(rows, columns=columns), note=note)]

    if predicted is not None:
        rows = [
            ("predicted", predicted.saving, predicted.saving_low, predicted.saving_high),
            ("measured", result.saving, result.saving_low, result.saving_high),
        ]
        table = pd.DataFrame(rows, columns=["what", "saving_ratio", "low_ratio", "high_ratio"])
        note = (
            "Savings are shares of the base, both without a profiler. The predicted interval is from p10 to p90. The "
            "measured interval is a 95% confidence interval."
        )
        sections.append(Section("prediction", "Predicted and measured saving", table, note=note))

    table = pd.DataFrame(
        [(run.round, run.side, exact(run.value)) for run in outcome.runs], columns=["round", "side", value]
    )
    note = (
        f"The runs are listed in the order in which they ran, after {plan.warmup} warm-up runs of each side. "
        f"A round has {2 * runs.PER_ROUND} runs."
    )
    sections.append(Section("runs", "Runs", table, note=note))
    data: dict[str, Any] = {"verdict": outcome.verdict.value, **msgspec.to_builtins(record(outcome))}
    headline = [*_headline(outcome)]
    if stored:
        shares = " and ".join(format_ratio(record.ratio) for record in stored.values())
        headline.append(
            f"Equal runs of {' and '.join(stored)} differ by {shares} (standard deviation "
            f"of the median step). perfkit compare uses this for recordings of this machine; stored in {file()}."
        )
    return Report("perfkit verify", (), tuple(sections), headline=tuple(headline), data={"verify": data})


_REASONS: Final = {
    Verdict.VERIFIED: ", and the saving lies in the predicted interval",
    Verdict.REFUTED: ", and the predicted saving is larger than the measured interval and noise",
    Verdict.SAME: "; more --rounds, or a quieter machine, may show a change",
    Verdict.CANNOT_TELL: " may be chance; more --rounds, or a quieter machine, may decide",
}


def _headline(outcome: Outcome) -> Iterator[str]:
    result = outcome.measured
    show = format_duration if outcome.plan.metric.is_step_time else format_count
    medians = f"{show(result.base)} → {show(result.change)}"
    yield f"{outcome.verdict.value.capitalize()}: {medians}{_REASONS.get(outcome.verdict, '')}."
    low, high = format_ratio(result.saving_low), format_ratio(result.saving_high)
    yield (
        f"Saving: {format_ratio(result.saving)} ({format_ratio(LEVEL)} interval {low} to {high}). Noise floor: "
        f"{format_ratio(result.noise)} (the difference that equal runs of the base may show)."
    )
    base, change, predicted = outcome.frameworks("base"), outcome.frameworks("change"), outcome.predicted
    if predicted is not None:
        error = saving_error(result, predicted)
        saving = "" if error is None else f"{format_ratio(error, signed=True)} for the saving, "
        low, high = format_ratio(predicted.saving_low), format_ratio(predicted.saving_high)
        yield (
            f"{fit(result, predicted).value.capitalize()}: {format_ratio(predicted.saving)} was predicted "
            f"(p10 to p90: {low} to {high}). Prediction error: {saving}"
            f"{format_ratio(step_error(result, predicted), signed=True)} for the step time."
        )
        measured_in = " and ".join(name for name in dict.fromkeys((*base, *change)) if name != predicted.framework)
        if predicted.framework and measured_in:
            advised = predicted.framework
            yield f"The advice is for {advised}, but {measured_in} was measured, so the prediction is not verified."
    if base != change:
        sides = f"base in {' and '.join(base)}, change in {' and '.join(change)}"
        yield f"The frameworks differ ({sides}), which contributes to the difference."
    machine = outcome.machine
    threads = "".join(f", {name}={value}" for name, value in machine.threads.items())
    yield f"Measured on {machine.cpu}, {len(machine.cpus)} usable CPUs{threads}."
