"""The outcome of a verification for people and machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pandas as pd

from perfkit_core.language.units import format_count, format_duration, format_ratio
from perfkit_core.report.model import Report, Section
from perfkit_core.verify.outcome import Outcome, Verdict, fit, record, saving_error, step_error
from perfkit_core.verify.runs import PER_ROUND
from perfkit_core.verify.statistics import LEVEL

NOISY = "more --rounds, or a quieter machine, may tell"


def report(outcome: Outcome) -> Report:
    """Verdict first, then the two sides, then the prediction where there was one, then every run."""
    sections = [_sides(outcome), *([_prediction(outcome)] if outcome.predicted else []), _runs(outcome)]
    data: dict[str, Any] = {"verdict": outcome.verdict.value, **msgspec.to_builtins(record(outcome))}
    return Report("perfkit verify", (), tuple(sections), headline=tuple(_headline(outcome)), data={"verify": data})


def _headline(outcome: Outcome) -> Iterator[str]:
    found = outcome.measured
    yield f"{outcome.verdict.value.capitalize()}: {_says(outcome)}."
    low, high = format_ratio(found.saving_low), format_ratio(found.saving_high)
    yield (
        f"Saving {format_ratio(found.saving)} (between {low} and {high} at {format_ratio(LEVEL)}); noise floor "
        f"{format_ratio(found.noise)}: so much do equal runs of the base differ."
    )
    if outcome.predicted is not None:
        yield from _beside(outcome)
    yield from _of_frameworks(outcome)
    machine = outcome.machine
    threads = "".join(f", {name}={value}" for name, value in machine.threads.items())
    yield f"Measured on {machine.cpu}, {len(machine.cpus)} CPUs that may be used{threads}."


def _says(outcome: Outcome) -> str:
    found, base, change = outcome.measured, *_told(outcome)
    if outcome.verdict is Verdict.VERIFIED:
        return f"the change is better, {base} → {change}"
    if outcome.verdict is Verdict.REFUTED:
        return f"the change is worse, {base} → {change}" if found.worse else (
            f"the predicted saving is not there, {base} → {change}"
        )  # fmt: skip
    return f"{base} → {change} may be chance; {NOISY}"


def _told(outcome: Outcome) -> tuple[str, str]:
    found = outcome.measured
    if outcome.plan.metric.is_step_time:
        return format_duration(found.base), format_duration(found.change)
    return format_count(found.base), format_count(found.change)


def _beside(outcome: Outcome) -> Iterator[str]:
    found, predicted = outcome.measured, outcome.predicted
    if predicted is None:
        return
    error = saving_error(found, predicted)
    off = "" if error is None else f"; the prediction of the saving is off by {format_ratio(error, signed=True)}"
    step = format_ratio(step_error(found, predicted), signed=True)
    low, high = format_ratio(predicted.saving_low), format_ratio(predicted.saving_high)
    yield (
        f"{fit(found, predicted).value.capitalize()}: {format_ratio(predicted.saving)} was predicted "
        f"(between {low} and {high}){off}, that of the step by {step}."
    )


def _of_frameworks(outcome: Outcome) -> Iterator[str]:
    """What is compared across frameworks, and what was said of another one."""
    base, change = outcome.frameworks("base"), outcome.frameworks("change")
    if base != change:
        yield f"The base trains in {_named(base)}, the change in {_named(change)}: both make the difference."
    said = outcome.predicted.framework if outcome.predicted else None
    others = [name for name in dict.fromkeys((*base, *change)) if name != said]
    if said and others:
        yield f"The advice is for {said}, and {_named(others)} was measured: this does not tell whether it was right."


def _named(frameworks: Sequence[str]) -> str:
    return " and ".join(frameworks)


def _sides(outcome: Outcome) -> Section:
    name = "step_ns" if outcome.plan.metric.is_step_time else "value"
    rows = []
    for side, command in (("base", outcome.plan.base), ("change", outcome.plan.change)):
        values = [run.value for run in outcome.runs if run.side == side]
        median = outcome.measured.base if side == "base" else outcome.measured.change
        rows.append((side, len(values), *map(_exact(name), (median, min(values), max(values))), command))
    columns = ["side", "runs", f"median_{name}", f"min_{name}", f"max_{name}", "command"]
    metric = "the mean step of a run" if name == "step_ns" else f"what {outcome.plan.metric.text!r} finds in a run"
    return Section("sides", "Both sides", pd.DataFrame(rows, columns=columns), note=f"Of each run counts {metric}.")


def _prediction(outcome: Outcome) -> Section:
    found, predicted = outcome.measured, outcome.predicted
    assert predicted is not None
    rows = [
        ("predicted", predicted.saving, predicted.saving_low, predicted.saving_high),
        ("measured", found.saving, found.saving_low, found.saving_high),
    ]
    columns = ["what", "saving_ratio", "low_ratio", "high_ratio"]
    note = "Shares of the base. The predicted interval is p10 to p90, the measured one 95%."
    return Section("prediction", "Saving, predicted and measured", pd.DataFrame(rows, columns=columns), note=note)


def _runs(outcome: Outcome) -> Section:
    name = "step_ns" if outcome.plan.metric.is_step_time else "value"
    rows = [(run.round, run.side, _exact(name)(run.value)) for run in outcome.runs]
    note = f"In this order, after {outcome.plan.warmup} of each that do not count; {2 * PER_ROUND} runs are a round."
    return Section("runs", "Runs", pd.DataFrame(rows, columns=["round", "side", name]), note=note)


def _exact(name: str) -> Any:
    return round if name == "step_ns" else float
