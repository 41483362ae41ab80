"""The gate: conditions of ``--fail-on`` and their outcomes.

A condition is a number (``VIEW.COLUMN``, ``VIEW.COLUMN[ROW]`` or ``step_time``), ``>`` or ``<``, and a limit, such as
``operators.self_cpu_ns[matmul] > +2ms``. It fails when

- ``> 3%``: other is more than 3 % above base (``< -3%``: below), ``> +5ms``: more than 5 ms above base;
- ``> 120ms``: other is above 120 ms, whatever base is.

If the limit is exceeded, the outcome is failed (the difference is beyond noise: interval and noise band), within noise
(equal runs may differ as much) or cannot tell (too few samples); else passed. Only failed ends the command with an
error. Samples are the steps, or captures for numbers without a value per step
(:mod:`~perfkit_core.compare.gate.view_samples`). Medians are compared for the step time, means for all other numbers,
because events of every tenth step have a median of 0."""

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
    "write NUMBER > LIMIT: step_time > 3%, or VIEW.COLUMN[ROW] > LIMIT as in operators.self_cpu_ns[matmul] > +2ms"
)
_FINE: Final = 2**40
"""Statistics are of integers: all but times are multiplied by this power of two, which keeps integers exact."""
_DIGITS: Final = 9
"""Digits after the decimal point of numbers multiplied by this."""


@dataclass(frozen=True, slots=True)
class Condition:
    """``column`` is None for the step time. ``limit`` is a share for a "change", else in the unit of the column (ns,
    bytes, 1). ``upward``: fails if the number is above."""

    text: str
    view: str
    column: str | None
    row: str | None
    upward: bool
    kind: Literal["change", "difference", "budget"]
    limit: float

    @property
    def in_time(self) -> bool:
        """Whether the number is a duration in ns."""
        return self.column is None or self.column.endswith("_ns")


def parsed(text: str) -> Condition:
    """Return the condition of a text. Raises UsageError."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise UsageError(f"--fail-on {text!r} is not a condition", _HINT)
    view, column, row = match["view"], match["column"], match["row"]
    if (view == STEP_TIME) != (column is None) or (view == STEP_TIME and row is not None):
        raise UsageError(f"--fail-on {text!r}: {view!r} is not a number", _HINT)
    number, unit, upward = match["limit"].replace(" ", "").replace("_", ""), match["unit"], match["sign"] == ">"
    kind: Literal["change", "difference", "budget"]
    kind = CHANGE if unit == "%" else DIFFERENCE if number[0] in "+-" else BUDGET
    scale, of = 0.01, units.TIMES if column is None else units.family(column)
    if kind != CHANGE:
        unit_of = {"": 1.0} if not unit and of not in (units.TIMES, units.SIZES) else units.writable_units(of)
        if unit not in unit_of:
            name = column or STEP_TIME
            wrong = f"{unit} does not suit {name}" if unit else f"the limit of {name} needs a unit"
            raise UsageError(f"--fail-on {text!r}: {wrong}", ", ".join(dict.fromkeys(("%", *unit_of))))
        scale = unit_of[unit]
    limit = float(number) * scale
    if kind != BUDGET and (limit < 0) == upward:
        raise UsageError(f"--fail-on {text!r} asks for a change in the other direction", "> 3%, or < -3%")
    return Condition(" ".join(text.split()), view, column, row, upward, kind, limit)


@dataclass(frozen=True, slots=True)
class Outcome:
    """``base``, ``other``, ``difference`` (other less base), ``low`` to ``high`` (its interval) and ``noise`` in the
    unit of the column (ns, bytes, 1). ``of_capture``: whether samples are whole captures, not steps."""

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
    """Return the outcome of every condition on the captures of two sides. ``steps``: their step statistics (by work, if
    requested); ``between``: the assumed difference of single captures
    (:func:`perfkit_core.compare.noise.between_runs`), ``of_device`` for device work. Raises UsageError for numbers that
    were not recorded."""
    of_views = any(condition.column is not None for condition in conditions)
    captures = [[split(trace) for trace in side] if of_views else [] for side in traces]
    results = []
    for condition in conditions:
        if condition.column is None:
            if steps is None:
                raise UsageError(
                    "step_time is unknown: a side has no steps",
                    "give the profiler a schedule, and call its step() after each iteration",
                )
            results.append(_judged(condition, steps, 1))
            continue
        number = Number(summary.choose_views([condition.view], single=True)[0], condition.column, condition.row)
        every = [*captures[0], *captures[1]]
        rows, by_step = view_samples.rows(every, number), view_samples.by_step(every, number)
        sides = [view_samples.samples(side, number) for side in captures]
        for name, side in zip(("base", "other"), sides, strict=True):
            if not sum(map(len, side)):
                raise UsageError(f"{number.name} is unknown in {name}", "perfkit summary shows what was recorded")
        if number.exact and max(len(samples) for side in sides for samples in side) < 2:
            # one count of the whole run has no spread: given twice, so that it has statistics
            sides = [[np.repeat(samples, 2) for samples in side] for side in sides]
        assumed = 0.0 if number.exact else of_device if number.on_device(rows) else between
        scale = 1 if condition.in_time else _FINE
        scaled = [[samples * scale for samples in side] for side in sides]
        statistics = step_statistics(scaled[0], scaled[1], np.mean, assumed)
        results.append(replace(_judged(condition, statistics, scale), of_capture=not by_step))
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
    if condition.kind == BUDGET:  # the noise of one side alone applies
        sure = noise is not None and abs(other - condition.limit) > noise / 2**0.5
    unknown = noise is None or low is None
    return replace(outcome, result=FAILED if sure else CANNOT_TELL if unknown else WITHIN_NOISE)


def table(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """Return the columns condition, result, base, other, difference (in words, as each row has its own unit),
    change_ratio, noise (the difference that equal runs may have)."""
    rows = [
        [
            one.condition.text, one.result, _words(one, one.base), _words(one, one.other),
            _words(one, one.difference, signed=True), one.change_ratio, _words(one, one.noise),
        ]
        for one in outcomes
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
    note = say("A condition fails where its limit is exceeded by more than noise explains.")
    note += " " + say("For the step time the median is compared, for all else the mean over steps or captures.")
    return model.Section("gate", say("Gate"), table, note)


def data(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return a mapping for each condition; numbers in the unit of the column (``unit``: "ns", "bytes" or "").
    ``samples``: "steps" or whole "captures"; ``statistic``: "median" or "mean"."""
    mappings = []
    for one in outcomes:
        column = one.condition.column or STEP_TIME
        mappings.append({
            "condition": one.condition.text, "result": one.result,
            "unit": "ns" if one.condition.in_time else "bytes" if column.endswith("bytes") else "",
            "base": one.base, "other": one.other, "difference": one.difference, "change_ratio": one.change_ratio,
            "interval": None if one.low is None else [one.low, one.high], "noise": one.noise,
            "samples": "captures" if one.of_capture else "steps",
            "statistic": "median" if one.condition.column is None else "mean",
        })  # fmt: skip
    return mappings
