"""The samples of a condition: a number of a view in every step of every capture. Numbers without a value per step are
taken of each capture as a whole, as in a summary: those of views that look beyond a step (leaks), and extremes. A peak
is that of one step, which a mean over steps or a selection of them would lose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.errors import UsageError
from perfkit_core.model.columns import DEVICE, keys
from perfkit_core.model.schema import MEMORY
from perfkit_core.model.trace import Trace, once
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.ranks import plan, profile
from perfkit_core.views.memory.memory import IN_STEP, OUTSIDE
from perfkit_core.views.select import step_numbers
from perfkit_core.views.tables import stacked

MOST_STEPS: Final = 24
"""Steps of a capture that are used, spread over it: a view is computed once for each."""
_CANONICAL: Final = "op_name"
_SHOWN: Final = 8
"""Rows that an error lists."""

FloatArray = npt.NDArray[np.float64]
Ranks = Sequence[Trace]
"""A capture: a trace for each of its ranks."""


@dataclass(frozen=True, slots=True)
class Number:
    """A column of a view, for one row, the sum of several rows, or all rows."""

    view: View
    column: str
    row: str | None

    @property
    def name(self) -> str:
        """The number as a condition spells it."""
        return f"{self.view.name}.{self.column}" + (f"[{self.row}]" if self.row is not None else "")

    @property
    def sums(self) -> bool:
        return self.view.column(self.column).sums

    @property
    def exact(self) -> bool:
        """Whether equal runs repeat it exactly."""
        return self.view.column(self.column).exact

    @property
    def of_capture(self) -> bool:
        """Whether it is known for whole captures only."""
        return self.view.of_capture is not None or self.view.column(self.column).of_capture

    @property
    def none_is_zero(self) -> bool:
        """Whether a missing row means 0. Values that do not add up have no number without a row."""
        return self.sums or (self.row is not None and self.view.of_capture is not None and self.exact)

    def on_device(self, rows: pd.DataFrame) -> bool:
        """Return whether the counted events are all device work; ``rows``: the rows of the number."""
        place = self.view.column(self.column).place
        if place or not len(rows):
            return place == DEVICE
        columns = (self.view.column(str(name)) for name in rows)
        return any(column.device_values and rows[column.name].isin(column.device_values).all() for column in columns)


def samples(captures: Sequence[Ranks], number: Number) -> list[FloatArray]:
    """Return the number in each step of each capture, shape (steps,) each; of the whole capture without steps, and for
    numbers without a value per step. Steps without a value are left out. Raises UsageError if the view has no such
    column, or the column no such sum."""
    arrays = []
    for ranks in captures:
        requests, recorded = [ViewRequest()], number.view.of_capture is None or any(map(number.view.of_capture, ranks))
        steps = np.unique(np.concatenate([step_numbers(trace) for trace in ranks]))
        if not number.of_capture and len(steps):
            spread = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), MOST_STEPS)).round().astype(int))
            requests = [ViewRequest(steps=(int(step),)) for step in steps[spread]]
        values = [_value(_table(ranks, number.view, request), number) for request in requests if recorded]
        arrays.append(np.array([value for value in values if value is not None], np.float64))
    return arrays


def by_step(captures: Sequence[Ranks], number: Number) -> bool:
    """Return whether steps are the samples, not captures."""
    return not number.of_capture and any(step_numbers(trace) for ranks in captures for trace in ranks)


def rows(captures: Sequence[Ranks], number: Number) -> pd.DataFrame:
    """Return the rows of the number from all captures; none for a number without a row, or with a row that may appear
    later. Raises UsageError, with the known rows, if no capture has the row."""
    if number.row is None:
        return pd.DataFrame()
    tables = [_table(ranks, number.view, ViewRequest()) for ranks in captures]
    matching = stacked([_matching(table, number, number.row) for table in tables])
    if len(matching):
        return matching
    whole = stacked(tables)
    guarded = number.view.of_capture is not None and number.none_is_zero and "name" in whole.columns
    if guarded:  # a recorded name with an empty row is no typing error
        names = {IN_STEP, OUTSIDE}.union(*(_names(trace) for ranks in captures for trace in ranks))
        if number.row in names or names.issuperset(_parts(number.row)):
            return matching
    known = []
    for row in whole[keys(number.view.columns, whole)].itertuples(index=False):
        known.append(", ".join(str(value) for value in row if value is not None and not pd.isna(value)))
    known = list(dict.fromkeys(known))
    more = f" and {len(known) - _SHOWN} more" if known[_SHOWN:] else ""
    listed = "; ".join(known[:_SHOWN]) + more or "none, the view is empty"
    unrecorded = ", and no recorded event has this name" if guarded else ""
    raise UsageError(f"no row {number.row!r} in {number.view.name}{unrecorded}", f"known: {listed}")


def _names(trace: Trace) -> set[str]:
    device = trace.codes("device")
    of_memory = np.unique(device.codes[trace.rows("kind", MEMORY)])
    devices = (device.values[code] for code in of_memory.tolist() if code >= 0)
    names = (*trace.codes("name").values, *trace.codes(_CANONICAL).values)
    return {*names, *map(str, trace.meta.ranks), *devices}


def _table(ranks: Ranks, view: View, request: ViewRequest) -> pd.DataFrame:
    """Return the table as in a summary, with canonical operator names; not in a tree, whose rows contain each other."""
    table = profile.of_ranks(ranks, [view], plan.Job((view.name,), request)).tables[view.name]
    if "name" not in table.columns or not {_CANONICAL, "depth"}.isdisjoint(table.columns):
        return table
    by_name = {name: canonical for trace in ranks for name, canonical in _canonical(trace).items()}
    return table.assign(**{_CANONICAL: table["name"].map(by_name)})


@once
def _canonical(trace: Trace) -> dict[str, str]:
    name, canonical = trace.codes("name"), trace.codes(_CANONICAL)
    rows = np.flatnonzero(trace.host & (canonical.codes >= 0))
    pairs = np.unique(np.stack([name.codes[rows], canonical.codes[rows]]), axis=1)
    return {name.values[one]: canonical.values[other] for one, other in pairs.T.tolist()}


def _value(table: pd.DataFrame, number: Number) -> float | None:
    if number.column not in table.columns or not pd.api.types.is_numeric_dtype(table[number.column]):
        if table.empty and number.column in table.columns:  # an empty column may have no type
            return None
        known = ", ".join(str(name) for name in table.columns if pd.api.types.is_numeric_dtype(table[name]))
        hint = f"known: {known or 'none, the view is empty'}"
        raise UsageError(f"{number.view.name} has no number {number.column!r}", hint)
    rows = table if number.row is None else _matching(table, number, number.row)
    if number.row is None and "depth" in table.columns:
        rows = rows[rows["depth"] == 0]
    values = rows[number.column].dropna()
    # Totals include nested calls: operators of one canonical name call each other, too.
    own = number.column.replace("total_", "self_", 1)
    nested = own != number.column and own in table.columns
    inclusive = nested and number.column.startswith("total_") and "depth" not in table.columns
    if len(values) > 1 and (not number.sums or inclusive):
        hint = f"or ask for {own}, which adds up" if nested else "COLUMN[ROW]"
        text = f"{number.name} is not one number: {len(values)} rows"
        raise UsageError(text, f"select one of them in brackets, {hint}")
    if values.empty:
        recorded = rows.empty and (table.empty or bool(table[number.column].notna().any()))
        return 0.0 if number.none_is_zero and recorded else None
    return float(values.sum())


def _matching(table: pd.DataFrame, number: Number, row: str) -> pd.DataFrame:
    """Return the rows with the wanted name, or with all names of a list, in the columns that distinguish rows."""
    names = [*keys(number.view.columns, table), *([_CANONICAL] if _CANONICAL in table.columns else [])]
    texts = table[names].astype(object).where(table[names].notna(), "").astype(str)
    exact = (texts == row).any(axis=1)
    if exact.any():
        return table[exact]
    every = np.logical_and.reduce([(texts == part).any(axis=1) for part in _parts(row)])
    return table[every]


def _parts(row: str) -> list[str]:
    return [part.strip() for part in row.split(",")]
