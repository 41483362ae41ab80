"""The gate: conditions of ``--fail-on`` and their outcomes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.compare.gate import view_samples
from perfkit_core.compare.gate.view_samples import Number, Ranks
from perfkit_core.compare.noise import ON_DEVICE
from perfkit_core.compare.statistics import SampleStatistics, step_statistics
from perfkit_core.errors import UsageError
from perfkit_core.language.messages import say
from perfkit_core.language.units import (
    SHARES,
    SIZES,
    TIMES,
    family,
    format_count,
    format_quantity,
    format_ratio,
    writable_units,
)
from perfkit_core.model.trace import Trace
from perfkit_core.ranks.reduce import split
from perfkit_core.report.model import Section
from perfkit_core.report.summary import choose_views

STEP_TIME: Final = "step_time"
CHANGE: Final = "change"
DIFFERENCE: Final = "difference"
BUDGET: Final = "budget"
_FORM: Final = re.compile(
    r"\s*(?P<view>\w+)\s*(?:\.\s*(?P<column>\w+)\s*)?(?:\[(?P<row>.*)\]\s*)?(?P<sign>[<>])\s*"
    r"(?P<limit>[+-]?\s*(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(?P<unit>[^\d\s]*)\s*"
)
_HINT: Final = (
    "write NUMBER > LIMIT: step_time > 3%, or VIEW.COLUMN[ROW] > LIMIT as in operators.self_cpu_ns[matmul] > +2ms"
)


@dataclass(frozen=True, slots=True)
class Condition:
    """``column`` is None for the step time. ``limit`` is a share for a "change", else in the unit of the column (ns,
    bytes, 1). ``upward``: fails when the number is above."""

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
    """The condition that a text means. Raises UsageError."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise UsageError(f"--fail-on {text!r} is no condition", _HINT)
    view, column, row = match["view"], match["column"], match["row"]
    if (view == STEP_TIME) != (column is None) or (view == STEP_TIME and row is not None):
        raise UsageError(f"--fail-on {text!r}: {view!r} is no number", _HINT)
    number, unit, upward = match["limit"].replace(" ", "").replace("_", ""), match["unit"], match["sign"] == ">"
    kind: Literal["change", "difference", "budget"]
    kind = CHANGE if unit == "%" else DIFFERENCE if number[0] in "+-" else BUDGET
    limit = float(number) * (0.01 if kind == CHANGE else _size(text, column, unit))
    if kind != BUDGET and (limit < 0) == upward:
        raise UsageError(f"--fail-on {text!r} asks for a change in the other direction", "> 3%, or < -3%")
    return Condition(" ".join(text.split()), view, column, row, upward, kind, limit)


def _size(text: str, column: str | None, unit: str) -> float:
    of, name = (TIMES, STEP_TIME) if column is None else (family(column), column)
    if not unit and of not in (TIMES, SIZES):
        return 1.0
    units = writable_units(of)
    if unit not in units:
        wrong = f"{unit} does not suit {name}" if unit else f"the limit of {name} needs a unit"
        raise UsageError(f"--fail-on {text!r}: {wrong}", ", ".join(dict.fromkeys(("%", *units))))
    return units[unit]


FAILED: Final = "failed"
WITHIN_NOISE: Final = "within noise"
PASSED: Final = "passed"
CANNOT_TELL: Final = "cannot tell"
_FINE: Final = 2**40
"""Statistics count in whole numbers: all but times in parts of 1. A power of two, so that whole numbers stay exact."""
_DIGITS: Final = 9
"""Behind the point, of numbers that were counted so."""

Samples = Sequence[npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """``base``, ``other``, ``difference`` (other less base), ``low`` to ``high`` (its interval) and ``noise`` in the
    unit of the column (ns, bytes, 1). ``of_capture``: whether it is a number of whole captures, not of steps."""

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


@dataclass(frozen=True, slots=True)
class Gated:
    """Both sides as a gate needs them: the traces of each capture, the steps (by their work, where asked), and what
    single captures are taken to differ by (:func:`perfkit_core.compare.noise.between_runs`); ``of_device``:
    the same of device work."""

    traces: tuple[Sequence[Trace], Sequence[Trace]]
    steps: SampleStatistics | None
    between: float
    of_device: float = ON_DEVICE


def outcomes(conditions: Sequence[Condition], sides: Gated) -> tuple[Outcome, ...]:
    """Every condition on the two sides. Raises UsageError for what is not in the profiles."""
    of_views = any(one.column is not None for one in conditions)
    base, other = ([split(trace) for trace in side] if of_views else [] for side in sides.traces)
    return tuple(_outcome(one, sides, base, other) for one in conditions)


def _outcome(condition: Condition, sides: Gated, base: Sequence[Ranks], other: Sequence[Ranks]) -> Outcome:
    if condition.column is None:
        if sides.steps is None:
            raise UsageError(
                "step_time is not known: a side has no steps",
                "give the profiler a schedule, and call its step() after each iteration",
            )
        return _judged(condition, sides.steps, 1)
    number = Number(choose_views([condition.view], single=True)[0], condition.column, condition.row)
    every = [*base, *other]
    rows, by_step = view_samples.rows(every, number), view_samples.by_step(every, number)
    found = [view_samples.samples(side, number) for side in (base, other)]
    for name, side in zip(("base", "other"), found, strict=True):
        if not sum(map(len, side)):
            raise UsageError(f"{number.name} is not known in {name}", "perfkit summary shows what was recorded")
    between = 0.0 if number.exact else sides.of_device if number.on_device(rows) else sides.between
    return replace(_compared(condition, found[0], found[1], between, number.exact), of_capture=not by_step)


def _compared(condition: Condition, base: Samples, other: Samples, between: float, exact: bool) -> Outcome:
    scale = 1 if condition.in_time else _FINE
    sides = [[one * scale for one in side] for side in (base, other)]
    if exact and max(len(one) for side in sides for one in side) < 2:  # a count of the whole run, twice
        sides = [[np.repeat(one, 2) for one in side] for side in sides]
    found = step_statistics(sides[0], sides[1], np.mean, between)
    return _judged(condition, found, scale)


def _judged(condition: Condition, found: SampleStatistics, scale: int) -> Outcome:
    def number(value: int) -> float:
        return value if scale == 1 else round(value / scale, _DIGITS)

    change = found.change_ratio
    low, high, noise = (None if one is None else number(one) for one in (found.low, found.high, found.noise))
    outcome = Outcome(
        condition, PASSED, number(found.base), number(found.other), number(found.difference),
        change if change is None or scale == 1 else round(change, _DIGITS), low, high, noise,
    )  # fmt: skip
    if not _exceeded(outcome):
        return outcome
    unknown = found.noise is None or found.low is None
    sure = _beyond_noise(outcome) if condition.kind == BUDGET else found.beyond_noise
    return replace(outcome, result=FAILED if sure else CANNOT_TELL if unknown else WITHIN_NOISE)


def _exceeded(one: Outcome) -> bool:
    limit, value = one.condition.limit, one.difference
    if one.condition.kind == BUDGET:
        value = one.other
    elif one.condition.kind == CHANGE:
        value = float("inf") * value if one.change_ratio is None and value else one.change_ratio or 0.0
    return value > limit if one.condition.upward else value < limit


def _beyond_noise(one: Outcome) -> bool:
    """Whether a budget is exceeded by more than one side alone may vary."""
    return one.noise is not None and abs(one.other - one.condition.limit) > one.noise / 2**0.5


def table(found: Sequence[Outcome]) -> pd.DataFrame:
    """Columns condition, result, base, other, difference (in words: every row has a unit of its own), change_ratio,
    noise (what equal runs may differ by)."""
    rows = [
        [
            one.condition.text, one.result, _words(one, one.base), _words(one, one.other),
            _words(one, one.difference, signed=True), one.change_ratio, _words(one, one.noise),
        ]
        for one in found
    ]  # fmt: skip
    columns = ["condition", "result", "base", "other", "difference", "change_ratio", "noise"]
    return pd.DataFrame(rows, columns=columns).astype({"change_ratio": "Float64"})


def section(table: pd.DataFrame) -> Section:
    """The table of one pair or more as people read it."""
    note = say("A condition fails where its limit is exceeded by more than noise explains.")
    note += " " + say("Of the step time the median is compared, of all else the mean over steps or captures.")
    return Section("gate", say("Gate"), table, note)


def data(found: Sequence[Outcome]) -> list[dict[str, Any]]:
    """A mapping a condition; numbers in the unit of the column (``unit``: "ns", "bytes" or ""). ``samples``: whether
    "steps" are compared or whole "captures"; ``statistic``: by their "median" or "mean"."""
    return [
        {
            "condition": one.condition.text, "result": one.result, "unit": _unit(one), "base": one.base,
            "other": one.other, "difference": one.difference, "change_ratio": one.change_ratio,
            "interval": None if one.low is None else [one.low, one.high], "noise": one.noise,
            "samples": "captures" if one.of_capture else "steps",
            "statistic": "median" if one.condition.column is None else "mean",
        }
        for one in found
    ]  # fmt: skip


def _unit(one: Outcome) -> str:
    column = one.condition.column or STEP_TIME
    return "ns" if one.condition.in_time else "bytes" if column.endswith("bytes") else ""


def _words(one: Outcome, value: float | None, signed: bool = False) -> str | None:
    if value is None:
        return None
    of = family(one.condition.column or f"{STEP_TIME}_ns")
    if of is None:
        return f"{'+' if signed and value > 0 else ''}{format_count(value)}"
    return format_ratio(value, signed) if of is SHARES else format_quantity(value, of, signed)
