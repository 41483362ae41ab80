"""The gate: conditions of ``--fail-on`` and their outcomes.

A condition such as ``operators.self_cpu_ns[matmul] > +2ms`` has three parts: a number (``step_time``, ``VIEW.COLUMN``
or ``VIEW.COLUMN[ROW]``), ``>`` or ``<``, and a limit. There are three kinds of limits:

- ``> 3%`` fails if other is more than 3% above base, and ``< -3%`` if other is more than 3% below base.
- ``> +5ms`` fails if other is more than 5 ms above base.
- ``> 120ms`` fails if other is above 120 ms, independent of base.

A condition has one of four outcomes:

- "passed": the number is within the limit.
- "failed": the limit is exceeded, and the excess is beyond noise. Only this outcome ends the command with an error.
- "within noise": the limit is exceeded, but the excess is not beyond noise.
- "cannot tell": the limit is exceeded, but there are too few samples to know the noise.

Step times are compared by their median. All other numbers are compared by their mean, because the median of events that
occur only in every tenth step is 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from perfkit_core.base.language import units
from perfkit_core.base.language.messages import say
from perfkit_core.compare.gate import view_samples
from perfkit_core.compare.gate.view_samples import Number
from perfkit_core.compare.statistics import SampleStatistics, step_statistics
from perfkit_core.errors import UsageError
from perfkit_core.output.report import summary
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.ranks.reduce import split
from perfkit_core.trace.model import columns
from perfkit_core.trace.model.report_data import Section
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.select import step_numbers

Kind = Literal["change", "difference", "budget"]
STEP_TIME: Final = "step_time"
_STEP_TIME: Final = columns.duration(STEP_TIME, "Step time")
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
"""Numbers other than times are multiplied by this power of two, because statistics are computed with integers."""
_DIGITS: Final = 9
"""Decimal places to which numbers other than times are rounded."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of ``--fail-on``."""

    text: str
    view: str
    column: str | None  # The column of the view; None for the step time.
    row: str | None
    upward: bool  # Whether the condition fails above the limit (true) or below it (false).
    kind: Kind
    limit: float  # In the unit of the column. If ``kind`` is "change": a share of base (0.03 means 3%).
    unit: str  # The declared unit of the column.


def parsed(text: str) -> Condition:
    """Parse a condition. Raises UsageError."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise UsageError(f"--fail-on {text!r} is not a condition", _HINT)
    view, column, row = match["view"], match["column"], match["row"]
    if (view == STEP_TIME) != (column is None) or (view == STEP_TIME and row is not None):
        raise UsageError(f"--fail-on {text!r}: {view!r} is not a number", _HINT)
    number, unit, upward = "".join(match["limit"].split()).replace("_", ""), match["unit"], match["sign"] == ">"
    kind: Kind = CHANGE if unit == "%" else DIFFERENCE if number[0] in "+-" else BUDGET
    declaration = get_plugins().views().get(view)
    tested = _STEP_TIME if column is None else columns.column(declaration.columns if declaration else (), column)
    scale, of = 0.01, units.family(tested.unit)
    if kind != CHANGE:
        unit_of = {"": 1.0} if not unit and of not in (units.TIMES, units.SIZES) else units.writable_units(of)
        if unit not in unit_of:
            problem = f"{unit} is not a unit of {tested.name}" if unit else f"the limit of {tested.name} needs a unit"
            raise UsageError(f"--fail-on {text!r}: {problem}", f"use {', '.join(dict.fromkeys(('%', *unit_of)))}")
        scale = unit_of[unit]
    limit = float(number) * scale
    if kind != BUDGET and (limit < 0) == upward:
        problem = f"--fail-on {text!r}: the limit after {match['sign']} has the wrong sign (+ or -)"
        raise UsageError(problem, "write > 3% for an increase, or < -3% for a decrease")
    return Condition(" ".join(text.split()), view, column, row, upward, kind, limit, tested.unit)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a condition. Numbers are in the unit of the tested column (ns, bytes, or none)."""

    condition: Condition
    result: str
    base: float
    other: float
    difference: float  # The difference is other minus base.
    change_ratio: float | None
    low: float | None  # Lower end of the 95% interval of the difference.
    high: float | None  # Upper end of the 95% interval of the difference.
    noise: float | None  # The largest difference that equal runs may show.
    of_capture: bool = False  # Whether the samples are captures, not steps.


def outcomes(
    conditions: Sequence[Condition],
    traces: tuple[Sequence[Trace], Sequence[Trace]],
    steps: SampleStatistics | None,
    between: float,
    of_device: float,
) -> tuple[Outcome, ...]:
    """Return the outcome of every condition. Raises UsageError for numbers that were not recorded.

    - ``traces``: the captures of base and of other.
    - ``steps``: the statistics of the step times, per unit of work if requested.
    - ``between``: the assumed relative standard deviation between equal runs.
    - ``of_device``: the value that replaces ``between`` for numbers that measure only device work.
    """
    of_views = any(condition.column is not None for condition in conditions)
    captures = [[split(trace) for trace in side] if of_views else [] for side in traces]
    results = []
    for condition in conditions:
        if condition.column is None:
            if steps is None:
                hint = "give the profiler a schedule, and call its step() after each iteration"
                raise UsageError("step_time is unknown, because a run has no steps", hint)
            results.append(evaluate(condition, steps))
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
        scale = 1 if condition.unit == units.TIMES.suffix else _FINE
        scaled = [[samples * scale for samples in side] for side in sides]
        statistics = step_statistics(scaled[0], scaled[1], np.mean, assumed)
        results.append(replace(evaluate(condition, statistics, scale), of_capture=of_capture))
    return tuple(results)


def evaluate(condition: Condition, statistics: SampleStatistics, scale: int = 1) -> Outcome:
    """Return the outcome of a condition. The samples of ``statistics`` are in the unit of the condition, multiplied by
    ``scale``."""

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
    if condition.kind == BUDGET:  # The limit does not depend on base, so only the noise of ``other`` matters.
        sure = noise is not None and abs(other - condition.limit) > noise / 2**0.5
    unknown = noise is None or low is None
    return replace(outcome, result=FAILED if sure else CANNOT_TELL if unknown else WITHIN_NOISE)


def table(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """Return a table with one row per condition. Numbers are texts with units, because each row has its own unit."""
    rows = [
        [
            outcome.condition.text, outcome.result, _words(outcome, outcome.base), _words(outcome, outcome.other),
            _words(outcome, outcome.difference, signed=True), outcome.change_ratio, _words(outcome, outcome.noise),
        ]
        for outcome in outcomes
    ]  # fmt: skip
    names = ["condition", "result", "base", "other", "difference", "change_ratio", "noise"]
    return pd.DataFrame(rows, columns=names).astype({"change_ratio": "Float64"})


def _words(outcome: Outcome, value: float | None, signed: bool = False) -> str | None:
    if value is None:
        return None
    number_family = units.family(outcome.condition.unit)
    if number_family is None:
        return f"{'+' if signed and value > 0 else ''}{units.format_count(value)}"
    return units.format_quantity(value, number_family, signed)


def section(table: pd.DataFrame) -> Section:
    note = say(
        "A condition fails if its limit is exceeded by more than noise explains. Step times are compared by their "
        "median, all other numbers by their mean over steps or captures."
    )
    return Section("gate", say("Gate"), table, note)


def data(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    return [
        {
            "condition": outcome.condition.text, "result": outcome.result,
            "unit": outcome.condition.unit if outcome.condition.unit in ("ns", "bytes") else "",
            "base": outcome.base, "other": outcome.other, "difference": outcome.difference,
            "change_ratio": outcome.change_ratio, "noise": outcome.noise,
            "interval": None if outcome.low is None else [outcome.low, outcome.high],
            "samples": "captures" if outcome.of_capture else "steps",
            "statistic": "median" if outcome.condition.column is None else "mean",
        }
        for outcome in outcomes
    ]  # fmt: skip
