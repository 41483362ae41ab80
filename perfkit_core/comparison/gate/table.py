"""The outcomes of a gate as a table for people, and as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from perfkit_core.comparison.gate.conditions import STEP_TIME
from perfkit_core.comparison.gate.outcomes import Outcome
from perfkit_core.language import say
from perfkit_core.language.units import SHARES, family, format_count, format_quantity, format_ratio
from perfkit_core.report.model import Section


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
