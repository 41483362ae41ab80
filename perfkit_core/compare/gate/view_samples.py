"""The samples by which a condition of ``--fail-on`` is judged. A condition limits one number of a view. A sample is the
value of this number in one step of a capture.

Two kinds of numbers have one value per capture instead:

- Numbers of views that describe the whole capture, such as memory leaks.
- Extremes, for example the memory peak. A peak occurs in a single step, so a mean over steps would hide it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.errors import UsageError
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.ranks import plan, profile
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.columns import DEVICE, OP_NAME, Column, keys
from perfkit_core.trace.model.schema import MEMORY
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.memory.memory import IN_STEP, OUTSIDE
from perfkit_core.views.select import step_numbers
from perfkit_core.views.tables import concat

MOST_STEPS: Final = 24
"""Maximum number of steps that are sampled per capture, evenly spread. A view is computed once per sampled step."""
_CANONICAL: Final = "op_name"
_LISTED_ROWS: Final = 8

FloatArray = npt.NDArray[np.float64]
Ranks = Sequence[Trace]
"""One capture, as one trace per rank."""


@dataclass(frozen=True, slots=True)
class Number:
    """The number that a condition tests: a column of a view, in the rows with the name ``row`` (None: all rows)."""

    view: View
    column: str
    row: str | None

    @property
    def name(self) -> str:
        """The name of the number in a condition: ``view.column`` or ``view.column[row]``."""
        return f"{self.view.name}.{self.column}" + (f"[{self.row}]" if self.row is not None else "")

    @property
    def declared(self) -> Column:
        return self.view.column(self.column)

    @property
    def of_capture(self) -> bool:
        """Whether the number has one value per capture, not per step."""
        return self.view.computed.of_capture is not None or self.declared.over == "capture"

    @property
    def none_is_zero(self) -> bool:
        """Whether a missing row means 0, as for a total. Otherwise it means an unknown value, as for an average."""
        return self.declared.sums or bool(
            self.row is not None and self.view.computed.of_capture and self.declared.exact
        )

    def on_device(self, rows: pd.DataFrame) -> bool:
        """Return whether the number measures only device work. ``rows`` are the rows that the number selects."""
        measured_on = self.declared.place
        if measured_on or not len(rows):
            return measured_on == DEVICE
        columns = (self.view.column(str(name)) for name in rows)
        return any(rows[column.name].isin(column.place).all() for column in columns if isinstance(column.place, tuple))


def samples(captures: Sequence[Ranks], number: Number) -> list[FloatArray]:
    """Return one array per capture, with one value per sampled step. The array has one value for the whole capture if
    the capture has no steps, or if ``number.of_capture`` is set. Unknown values are left out. Raises UsageError if the
    view lacks the column of ``number``, or if ``number`` selects several rows whose values cannot be summed."""
    arrays = []
    for ranks in captures:
        holds = number.view.computed.of_capture
        requests, recorded = [ViewRequest()], holds is None or any(map(holds, ranks))
        steps = np.unique(np.concatenate([step_numbers(trace) for trace in ranks]))
        if not number.of_capture and len(steps):
            spread = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), MOST_STEPS)).round().astype(int))
            requests = [ViewRequest(steps=(int(step),)) for step in steps[spread]]
        values = [_value(_table(ranks, number.view, request), number) for request in requests if recorded]
        arrays.append(np.array([value for value in values if value is not None], np.float64))
    return arrays


def rows(captures: Sequence[Ranks], number: Number) -> pd.DataFrame:
    """Return the rows with the name ``number.row``, of all captures. If ``number.row`` is None, return an empty table.
    A name without rows usually raises UsageError. But memory views have no rows for some recorded events. If the name
    is that of such an event, return an empty table."""
    if number.row is None:
        return pd.DataFrame()
    tables = [_table(ranks, number.view, ViewRequest()) for ranks in captures]
    matching = concat([_matching(table, number, number.row) for table in tables])
    if len(matching):
        return matching
    every = concat(tables)
    guarded = number.view.computed.of_capture is not None and number.none_is_zero and "name" in every.columns
    if guarded:  # The name of a recorded event is valid, even if the view has no row for it.
        names = {IN_STEP, OUTSIDE}
        for trace in (trace for ranks in captures for trace in ranks):
            device = trace.codes("device")
            of_memory = np.unique(device.codes[trace.rows("kind", MEMORY)])
            names |= {*trace.codes("name").values, *trace.codes(_CANONICAL).values, *map(str, trace.meta.ranks)}
            names |= {device.values[code] for code in of_memory.tolist() if code >= 0}
        if number.row in names or names.issuperset(_parts(number.row)):
            return matching
    labels = [
        ", ".join(str(value) for value in row if value is not None and not pd.isna(value))
        for row in every[keys((*number.view.columns, OP_NAME), every)].itertuples(index=False)
    ]
    labels = list(dict.fromkeys(labels))
    more = f" and {len(labels) - _LISTED_ROWS} more" if labels[_LISTED_ROWS:] else ""
    listed = "; ".join(labels[:_LISTED_ROWS]) + more or "none, because the view is empty"
    unrecorded = ", and no recorded event has this name" if guarded else ""
    raise UsageError(f"no row {number.row!r} in {number.view.name}{unrecorded}", f"existing rows: {listed}")


def _table(ranks: Ranks, view: View, request: ViewRequest) -> pd.DataFrame:
    """Return the table of a view, with a column of canonical operator names unless the table is a tree."""
    table = profile.of_ranks(list(ranks), [view], plan.Job((view.name,), request)).tables[view.name]
    if "name" not in table.columns or not {_CANONICAL, "depth"}.isdisjoint(table.columns):
        return table
    by_name = {name: canonical for trace in ranks for name, canonical in _canonical(trace).items()}
    return table.assign(**{_CANONICAL: table["name"].map(by_name)})


@once
def _canonical(trace: Trace) -> dict[str, str]:
    name, canonical = trace.codes("name"), trace.codes(_CANONICAL)
    rows = np.flatnonzero(trace.host & (canonical.codes >= 0))
    pairs = np.unique(np.stack([name.codes[rows], canonical.codes[rows]]), axis=1)
    return {name.values[code]: canonical.values[canonical_code] for code, canonical_code in pairs.T.tolist()}


def _value(table: pd.DataFrame, number: Number) -> float | None:
    if number.column not in table.columns or not pd.api.types.is_numeric_dtype(table[number.column]):
        if table.empty and number.column in table.columns:  # An empty column may have no type.
            return None
        columns = ", ".join(str(name) for name in table.columns if pd.api.types.is_numeric_dtype(table[name]))
        hint = f"columns with numbers: {columns or 'none, because the view is empty'}"
        raise UsageError(f"{number.view.name} has no number {number.column!r}", hint)
    rows = table if number.row is None else _matching(table, number, number.row)
    if number.row is None and "depth" in table.columns:
        rows = rows[rows["depth"] == 0]
    values = rows[number.column].dropna()
    # Total times must not be summed, because operators with the same canonical name may call each other.
    self_column = number.declared.own
    nested = self_column in table.columns and number.view.column(self_column).sums
    if len(values) > 1 and (not number.declared.sums or (nested and "depth" not in table.columns)):
        hint = f", or use {self_column}, whose rows can be summed" if nested else ": COLUMN[ROW]"
        text = f"{number.name} is not a single number, because it has {len(values)} rows"
        raise UsageError(text, f"write the name of one row in brackets{hint}")
    if values.empty:
        recorded = rows.empty and (table.empty or bool(table[number.column].notna().any()))
        return 0.0 if number.none_is_zero and recorded else None
    return float(values.sum())


def _matching(table: pd.DataFrame, number: Number, row: str) -> pd.DataFrame:
    """Return the rows in which a key column has the value ``row``. If there are none, split ``row``
    at its commas: "matmul, forward" selects the rows with "matmul" in one key column and "forward" in another."""
    names = [*keys((*number.view.columns, OP_NAME), table), *([_CANONICAL] if _CANONICAL in table.columns else [])]
    texts = table[names].astype(object).where(table[names].notna(), "").astype(str)
    exact = (texts == row).any(axis=1)
    if exact.any():
        return table[exact]
    return table[np.logical_and.reduce([(texts == part).any(axis=1) for part in _parts(row)])]


def _parts(row: str) -> list[str]:
    return [part.strip() for part in row.split(",")]
