"""The samples of a condition: a number of a view in every step of every capture."""

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
from perfkit_core.ranks.plan import Job
from perfkit_core.ranks.profile import of_ranks
from perfkit_core.views.memory.memory import IN_STEP, OUTSIDE
from perfkit_core.views.select import step_numbers
from perfkit_core.views.tables import stacked


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
        """Whether the rows of the column add up."""
        return self.view.column(self.column).sums

    @property
    def exact(self) -> bool:
        """Whether a process repeats it exactly."""
        return self.view.column(self.column).exact

    @property
    def of_capture(self) -> bool:
        """Whether only the whole capture tells it."""
        return self.view.of_capture is not None or self.view.column(self.column).of_capture

    @property
    def none_is_zero(self) -> bool:
        """Whether a row that is missing has none of it. What does not add up has no number without a row, neither
        where there are several rows nor where there are none yet."""
        return self.sums or (self.row is not None and self.view.of_capture is not None and self.exact)

    def on_device(self, rows: pd.DataFrame) -> bool:
        """Whether only devices work in what is counted; ``rows``: those that it is of."""
        place = self.view.column(self.column).place
        if place or not len(rows):
            return place == DEVICE
        telling = (self.view.column(str(name)) for name in rows)
        return any(known.device_values and rows[known.name].isin(known.device_values).all() for known in telling)


MOST_STEPS: Final = 24
"""Of a capture that are looked at, spread over it: a view is computed once for each."""
_CANONICAL: Final = "op_name"
"""The column of the canonical name of an operator."""
_SHOWN: Final = 8
"""Rows that an error names."""

FloatArray = npt.NDArray[np.float64]
Ranks = Sequence[Trace]
"""A capture: a trace for each of its ranks."""


def samples(captures: Sequence[Ranks], number: Number) -> list[FloatArray]:
    """The number in each step of each capture, shape (steps,) each; without steps, and of what a step does not tell,
    that of the whole capture. Steps in which it is unknown are left out. Raises UsageError where the view has no such
    column, or the column no such sum."""
    return [_of_capture(ranks, number) for ranks in captures]


def by_step(captures: Sequence[Ranks], number: Number) -> bool:
    """Whether steps are the samples, not captures."""
    return not number.of_capture and any(step_numbers(trace) for ranks in captures for trace in ranks)


def _of_capture(ranks: Ranks, number: Number) -> FloatArray:
    if number.view.of_capture is not None and not any(map(number.view.of_capture, ranks)):
        return np.empty(0, np.float64)
    requests = [] if number.of_capture else _steps(ranks)
    found = [_value(_table(ranks, number.view, request), number) for request in requests or [ViewRequest()]]
    return np.array([value for value in found if value is not None], np.float64)


def _steps(ranks: Ranks) -> list[ViewRequest]:
    """One for each step that is looked at."""
    steps = np.unique(np.concatenate([step_numbers(trace) for trace in ranks]))
    chosen = steps[np.unique(np.linspace(0, len(steps) - 1, min(len(steps), MOST_STEPS)).round().astype(int))]
    return [ViewRequest(steps=(int(step),)) for step in chosen]


def _table(ranks: Ranks, view: View, request: ViewRequest) -> pd.DataFrame:
    """As a summary shows it, with the canonical names of operators; not in a tree, where one lies in another."""
    table = of_ranks(ranks, [view], Job((view.name,), request)).tables[view.name]
    if "name" not in table.columns or not {_CANONICAL, "depth"}.isdisjoint(table.columns):
        return table
    known = {name: canonical for trace in ranks for name, canonical in _canonical(trace).items()}
    return table.assign(**{_CANONICAL: table["name"].map(known)})


@once
def _canonical(trace: Trace) -> dict[str, str]:
    """The canonical name of each operator, by its own name."""
    name, canonical = trace.codes("name"), trace.codes(_CANONICAL)
    rows = np.flatnonzero(trace.host & (canonical.codes >= 0))
    pairs = np.unique(np.stack([name.codes[rows], canonical.codes[rows]]), axis=1)
    return {name.values[one]: canonical.values[other] for one, other in pairs.T.tolist()}


def rows(captures: Sequence[Ranks], number: Number) -> pd.DataFrame:
    """The rows that are meant, of all captures; none of a number without a row, or of one that may yet come. Raises
    UsageError where no capture has the row, with those that are known."""
    if number.row is None:
        return pd.DataFrame()
    tables = [_table(ranks, number.view, ViewRequest()) for ranks in captures]
    found = stacked([_matching(table, number, number.row) for table in tables])
    if len(found):
        return found
    whole = stacked(tables)
    guarded = number.view.of_capture is not None and number.none_is_zero and "name" in whole.columns
    if guarded and _recorded(captures, number.row):
        return found
    so = ", and nothing that was recorded is called so" if guarded else ""
    names = list(
        dict.fromkeys(", ".join(_keys(row)) for row in whole[keys(number.view.columns, whole)].itertuples(index=False))
    )
    more = f" and {len(names) - _SHOWN} more" if names[_SHOWN:] else ""
    known = "; ".join(names[:_SHOWN]) + more
    raise UsageError(f"no row {number.row!r} in {number.view.name}{so}", f"known: {known or 'none, the view is empty'}")


def _recorded(captures: Sequence[Ranks], row: str) -> bool:
    """Whether something in the recordings is called as the row is: that it has none is no typing error."""
    names = {IN_STEP, OUTSIDE}.union(*(_named(trace) for ranks in captures for trace in ranks))
    return row in names or names.issuperset(_parts(row))


def _named(trace: Trace) -> set[str]:
    """What may tell a row: the names of events, as recorded and canonical, ranks, and devices whose memory was
    recorded."""
    device = trace.codes("device")
    of_memory = np.unique(device.codes[trace.rows("kind", MEMORY)])
    devices = (device.values[code] for code in of_memory.tolist() if code >= 0)
    names = (*trace.codes("name").values, *trace.codes(_CANONICAL).values)
    return {*names, *map(str, trace.meta.ranks), *devices}


def _value(table: pd.DataFrame, number: Number) -> float | None:
    if number.column not in table.columns or not pd.api.types.is_numeric_dtype(table[number.column]):
        if table.empty and number.column in table.columns:  # without values it may have no type
            return None
        known = ", ".join(str(name) for name in table.columns if pd.api.types.is_numeric_dtype(table[name]))
        hint = f"known: {known or 'none, the view is empty'}"
        raise UsageError(f"{number.view.name} has no number {number.column!r}", hint)
    rows = table if number.row is None else _matching(table, number, number.row)
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
        return 0.0 if number.none_is_zero and recorded else None
    return float(values.sum())


def _adds_up(table: pd.DataFrame, number: Number) -> bool:
    """Totals hold what is inside of them, where there are own times beside them: operators of one canonical name, too,
    call each other."""
    whole = number.column.startswith("total_") and number.column.replace("total_", "self_", 1) in table.columns
    return number.sums and not (whole and "depth" not in table.columns)


def _matching(table: pd.DataFrame, number: Number, row: str) -> pd.DataFrame:
    """Rows that have the wanted name, or all of several that commas separate, in what tells rows apart."""
    names = [*keys(number.view.columns, table), *([_CANONICAL] if _CANONICAL in table.columns else [])]
    texts = table[names].astype(object).where(table[names].notna(), "").astype(str)
    exact = (texts == row).any(axis=1)
    if exact.any():
        return table[exact]
    every = np.logical_and.reduce([(texts == part).any(axis=1) for part in _parts(row)])
    return table[every]


def _parts(row: str) -> list[str]:
    return [part.strip() for part in row.split(",")]


def _keys(row: Sequence[object]) -> list[str]:
    return [str(value) for value in row if value is not pd.NA and value == value and value is not None]
