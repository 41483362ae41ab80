"""A number of a view, in every step of every capture: the samples of a condition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.analyses.step.step_rows import step_rows
from perfkit_core.errors import UsageError
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.report import key_columns
from perfkit_core.trace import Trace

MOST_STEPS: Final = 24
"""Of a capture that are looked at, spread over it: a view is computed once for each."""
_SHOWN: Final = 8
"""Rows that an error names."""

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Number:
    """A column of a view, of a row (or what several rows add up to), or of all rows."""

    view: View
    column: str
    row: str | None

    @property
    def name(self) -> str:
        """As a condition writes it."""
        return f"{self.view.name}.{self.column}" + (f"[{self.row}]" if self.row is not None else "")

    @property
    def sums(self) -> bool:
        """Whether the rows of the column add up; a row that is missing then is 0."""
        return self.column in self.view.per_step


def samples(traces: Sequence[Trace], number: Number) -> list[FloatArray]:
    """The number in each step of each capture, shape (steps,) each; without steps, that of the whole capture. Steps in
    which it is unknown are left out. Raises UsageError where the view has no such column, or the column no such sum."""
    return [_of_capture(trace, number) for trace in traces]


def _of_capture(trace: Trace, number: Number) -> FloatArray:
    steps = np.unique(trace.ints("step")[step_rows(trace)])
    chosen = steps[np.unique(np.linspace(0, len(steps) - 1, min(len(steps), MOST_STEPS)).round().astype(int))]
    requests = [ViewRequest(steps=(int(step),)) for step in chosen] or [ViewRequest()]
    found = [_value(number.view.table(trace, request), number) for request in requests]
    return np.array([value for value in found if value is not None], np.float64)


def check(traces: Sequence[Trace], number: Number) -> None:
    """Raises UsageError where no capture has the row, with those that are known."""
    if number.row is None:
        return
    tables = [number.view.table(trace, ViewRequest()) for trace in traces]
    if any(len(_matching(table, number.row)) for table in tables):
        return
    whole = pd.concat(tables)
    names = list(dict.fromkeys(", ".join(_keys(row)) for row in whole[key_columns.keys(whole)].itertuples(index=False)))
    more = f" and {len(names) - _SHOWN} more" if names[_SHOWN:] else ""
    known = "; ".join(names[:_SHOWN]) + more
    raise UsageError(f"no row {number.row!r} in {number.view.name}", f"known: {known or 'none, the view is empty'}")


def _value(table: pd.DataFrame, number: Number) -> float | None:
    if number.column not in table.columns or not pd.api.types.is_numeric_dtype(table[number.column]):
        known = ", ".join(str(name) for name in table.columns if pd.api.types.is_numeric_dtype(table[name]))
        raise UsageError(f"{number.view.name} has no number {number.column!r}", f"known: {known}")
    rows = table if number.row is None else _matching(table, number.row)
    if number.row is None and "depth" in table.columns:
        rows = rows[rows["depth"] == 0]
    values = rows[number.column].dropna()
    if len(values) > 1 and not _adds_up(table, number):
        own = number.column.replace("total_", "self_", 1)
        hint = f"or ask for {own}, which adds up" if own != number.column and own in table.columns else "COLUMN[ROW]"
        text = f"{number.name} is not one number: {len(values)} rows"
        raise UsageError(text, f"name one of them in brackets, {hint}")
    if values.empty:
        recorded = rows.empty and (table.empty or bool(table[number.column].notna().any()))
        return 0.0 if number.sums and recorded else None
    return float(values.sum())


def _adds_up(table: pd.DataFrame, number: Number) -> bool:
    """Totals hold what is inside of them, where there are own times beside them: operators of one canonical name, too,
    call each other."""
    whole = number.column.startswith("total_") and number.column.replace("total_", "self_", 1) in table.columns
    return number.sums and not (whole and "depth" not in table.columns)


def _matching(table: pd.DataFrame, row: str) -> pd.DataFrame:
    """Rows that have the wanted name, or all of several that commas separate, in what tells rows apart."""
    names = [*key_columns.keys(table), *(["op_name"] if "op_name" in table.columns else [])]
    texts = table[names].astype(object).where(table[names].notna(), "").astype(str)
    exact = (texts == row).any(axis=1)
    if exact.any():
        return table[exact]
    wanted = [part.strip() for part in row.split(",")]
    every = np.logical_and.reduce([(texts == part).any(axis=1) for part in wanted])
    return table[every]


def _keys(row: Sequence[object]) -> list[str]:
    return [str(value) for value in row if value is not pd.NA and value == value and value is not None]
