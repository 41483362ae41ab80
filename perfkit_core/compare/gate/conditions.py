"""The gate: conditions of ``--fail-on`` and their outcomes.

A condition such as ``operators.self_cpu_ns[matmul] > +2ms`` has three parts: a number (``step_time``, ``VIEW.COLUMN``
or ``VIEW.COLUMN[ROW]``), ``>`` or ``<``, and a limit. There are three kinds of limits:

- ``> 3%``: other must not be more than 3 % above base; ``< -3%``: it must not be more than 3 % below base;
- ``> +5ms``: other must not be more than 5 ms above base;
- ``> 120ms``: other must not be above 120 ms, independent of base.

If the number is within the limit, the outcome is "passed". If the limit is exceeded, the outcome is "failed" if the
excess is beyond noise, "cannot tell" if there are too few samples to know the noise, and "within noise" otherwise. Only
the outcome "failed" ends the command with an error. A sample is the value of the number in one step, or in one capture
if the number has no value per step (:mod:`~perfkit_core.compare.gate.view_samples`). Step times are compared by their
median. All other numbers are compared by their mean, because the median of events that occur in every tenth step is 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from perfkit_core.compare.gate import view_samples
from perfkit_core.compare.gate.view_samples import Number
from perfkit_core.compare.statistics import SampleStatistics, step_statistics
from perfkit_core.errors import UsageError
from perfkit_core.language import units
from perfkit_core.language.messages import say
from perfkit_core.model.trace import Trace
from perfkit_core.ranks.reduce import split
from perfkit_core.report import model, summary
from perfkit_core.views.select import step_numbers

Kind = Literal["change", "difference", "budget"]
STEP_TIME: Final = "step_time"
CHANGE: Final = "change"
DIFFERENCE: Final = "difference"
BUDGET: Final = "budget"
FAILED: Final = "failed"
WITHIN_NOISE: Final = "within noise"
PASSED: Final = "passed"
CANNOT_TELL: Final = "cannot tell"
_FORM: Final = re.compile(
    r"\s*(?P<view>\w+)\s*(?:\.\s*(?P<column>\w+)\s*)?(?:\[(?P<row>.*)\]\s*)?(?P<sign>[<>])\s*"
    r"(?P<limit>[+-]?\s*(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(?P<unit>[^\d\s]*)\s*"
)
_HINT: Final = (
    "write NUMBER > LIMIT, such as step_time > 3% or operators.self_cpu_ns[matmul] > +2ms (VIEW.COLUMN[ROW] > LIMIT)"
)
_FINE: Final = 2**40
"""Numbers other than times are multiplied by this factor, because statistics are computed with integers. With a power
of two, integers remain exact."""
_DIGITS: Final = 9
"""Decimal places to which numbers other than times are rounded after the division by this factor."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition. ``column`` is None for the step time. If ``upward`` is true, the condition fails above the limit,
    otherwise below it. ``limit`` is a share of base for the kind "change", else it has the unit of the column."""

    text: str
    view: str
    column: str | None
    row: str | None
    upward: bool
    kind: Kind
    limit: float

    @property
    def in_time(self) -> bool:
        """Whether the number is a duration in ns."""
        return self.column is None or self.column.endswith("_ns")


def parsed(text: str) -> Condition:
    """Parse a condition. Raises UsageError."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise UsageError(f"--fail-on {text!r} is not a condition", _HINT)
    view, column, row = match["view"], match["column"], match["row"]
    if (view == STEP_TIME) != (column is None) or (view == STEP_TIME and row is not None):
        raise UsageError(f"--fail-on {text!r}: {view!r} is not a number", _HINT)
    number, unit, upward = match["limit"].replace(" ", "").replace("_", ""), match["unit"], match["sign"] == ">"
    kind: Kind = CHANGE if unit == "%" else DIFFERENCE if number[0] in "+-" else BUDGET
    scale, of = 0.01, units.TIMES if column is None else units.family(column)
    if kind != CHANGE:
        unit_of = {"": 1.0} if not unit and of not in (units.TIMES, units.SIZES) else units.writable_units(of)
        if unit not in unit_of:
            name = column or STEP_TIME
            problem = f"{unit} is not a unit of {name}" if unit else f"the limit of {name} needs a unit"
            raise UsageError(f"--fail-on {text!r}: {problem}", f"use {', '.join(dict.fromkeys(('%', *unit_of)))}")
        scale = unit_of[unit]
    limit = float(number) * scale
    if kind != BUDGET and (limit < 0) == upward:
        problem = f"the sign of the limit in --fail-on {text!r} contradicts {match['sign']}"
        raise UsageError(problem, "write > 3% for an increase, or < -3% for a decrease")
    return Condition(" ".join(text.split()), view, column, row, upward, kind, limit)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a condition. Numbers are in the unit of the column (ns, bytes, or none). ``difference`` is other
    minus base, ``low`` to ``high`` is its 95 % interval, and ``noise`` is the difference that equal runs may show.
    ``of_capture`` is true if the samples are captures, not steps."""

    condition: Condition
    result: str
    base: float
    other: float
    difference: float
    change_ratio: float | None
    low: float | None
    high: float | None
    noise: float | None
    of_capture: bool = False


def outcomes(
    conditions: Sequence[Condition],
    traces: tuple[Sequence[Trace], Sequence[Trace]],
    steps: SampleStatistics | None,
    between: float,
    of_device: float,
) -> tuple[Outcome, ...]:
    """Return the outcome of every condition on the captures of base and other.

    ``steps`` are the statistics of the step times (per unit of work if requested). ``between`` is the relative standard
    deviation that is assumed between single captures (:func:`perfkit_core.compare.noise.between_runs`). ``of_device``
    is the same for device work. Raises UsageError for numbers that were not recorded.
    """
    of_views = any(condition.column is not None for condition in conditions)
    captures = [[split(trace) for trace in side] if of_views else [] for side in traces]
    results = []
    for condition in conditions:
        if condition.column is None:
            if steps is None:
                hint = "give the profiler a schedule, and call its step() after each iteration"
                raise UsageError("step_time is unknown, because a run has no steps", hint)
            results.append(_judged(condition, steps, 1))
            continue
        number = Number(summary.choose_views([condition.view], single=True)[0], condition.column, condition.row)
        every = [*captures[0], *captures[1]]
        rows = view_samples.rows(every, number)
        of_capture = number.of_capture or not any(step_numbers(trace) for ranks in every for trace in ranks)
        sides = [view_samples.samples(side, number) for side in captures]
        for name, side in zip(("base", "other"), sides, strict=True):
            if not sum(map(len, side)):
                raise UsageError(f"{number.name} is unknown in {name}", "list the recorded data with perfkit summary")
        exact = number.declared.exact
        if exact and max(len(samples) for side in sides for samples in side) < 2:
            # Equal runs repeat this number exactly. Statistics need two samples, so a single sample is used twice.
            sides = [[np.repeat(samples, 2) for samples in side] for side in sides]
        assumed = 0.0 if exact else of_device if number.on_device(rows) else between
        scale = 1 if condition.in_time else _FINE
        scaled = [[samples * scale for samples in side] for side in sides]
        statistics = step_statistics(scaled[0], scaled[1], np.mean, assumed)
        results.append(replace(_judged(condition, statistics, scale), of_capture=of_capture))
    return tuple(results)


def _judged(condition: Condition, statistics: SampleStatistics, scale: int) -> Outcome:
    def number(value: int) -> float:
        return value if scale == 1 else round(value / scale, _DIGITS)

    change = statistics.change_ratio
    change = change if change is None or scale == 1 else round(change, _DIGITS)
    bounds = (statistics.low, statistics.high, statistics.noise)
    low, high, noise = (None if value is None else number(value) for value in bounds)
    base, other, difference = map(number, (statistics.base, statistics.other, statistics.difference))
    outcome = Outcome(condition, PASSED, base, other, difference, change, low, high, noise)
    value = difference
    if condition.kind == BUDGET:
        value = other
    elif condition.kind == CHANGE:
        value = float("inf") * difference if change is None and difference else change or 0.0
    if not (value > condition.limit if condition.upward else value < condition.limit):
        return outcome
    sure = statistics.beyond_noise
    if condition.kind == BUDGET:  # The limit is independent of base, so only the noise of other applies.
        sure = noise is not None and abs(other - condition.limit) > noise / 2**0.5
    unknown = noise is None or low is None
    return replace(outcome, result=FAILED if sure else CANNOT_TELL if unknown else WITHIN_NOISE)


def table(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """Return a table with one row per condition. Columns: condition, result, base, other, difference, change_ratio,
    noise (the difference that equal runs may show). Numbers are texts with units, because each row has its own unit."""
    rows = [
        [
            outcome.condition.text, outcome.result, _words(outcome, outcome.base), _words(outcome, outcome.other),
            _words(outcome, outcome.difference, signed=True), outcome.change_ratio, _words(outcome, outcome.noise),
        ]
        for outcome in outcomes
    ]  # fmt: skip
    columns = ["condition", "result", "base", "other", "difference", "change_ratio", "noise"]
    return pd.DataFrame(rows, columns=columns).astype({"change_ratio": "Float64"})


def _words(outcome: Outcome, value: float | None, signed: bool = False) -> str | None:
    if value is None:
        return None
    number_family = units.family(outcome.condition.column or f"{STEP_TIME}_ns")
    if number_family is None:
        return f"{'+' if signed and value > 0 else ''}{units.format_count(value)}"
    return units.format_quantity(value, number_family, signed)


def section(table: pd.DataFrame) -> model.Section:
    note = say(
        "A condition fails if its limit is exceeded by more than noise explains. Step times are compared by their "
        "median, all other numbers by their mean over steps or captures."
    )
    return model.Section("gate", say("Gate"), table, note)


def data(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return the outcomes as plain data. ``unit`` is "ns", "bytes" or "", ``samples`` is "steps" or "captures", and
    ``statistic`` is "median" or "mean"."""
    return [
        {
            "condition": outcome.condition.text, "result": outcome.result,
            "unit": "ns" if outcome.condition.in_time
            else "bytes" if (outcome.condition.column or "").endswith("bytes") else "",
            "base": outcome.base, "other": outcome.other, "difference": outcome.difference,
            "change_ratio": outcome.change_ratio, "noise": outcome.noise,
            "interval": None if outcome.low is None else [outcome.low, outcome.high],
            "samples": "captures" if outcome.of_capture else "steps",
            "statistic": "median" if outcome.condition.column is None else "mean",
        }
        for outcome in outcomes
    ]  # fmt: skip
