"""What must not become worse? A condition of ``--fail-on``, as text and as what it means.

``step_time > 3%``, ``operators.self_cpu_ns[matmul] > +2ms``, ``memory_places.peak_bytes[cpu] > 1GiB``,
``device.busy_ratio < -5%``: a number (``VIEW.COLUMN``, ``VIEW.COLUMN[ROW]`` or ``step_time``), ``>`` or ``<``, a limit.

==================  ================================================================================================
limit               fails when
==================  ================================================================================================
``> 3%``            other is more than 3 % above base; ``< -3%``: more than 3 % below
``> +5ms``          other is more than 5 ms above base; ``< -5ms``: more than 5 ms below
``> 120ms``         other is above 120 ms, whatever base is; ``< 100``: below 100
==================  ================================================================================================

What a condition asks of a view: one number, and what its name and its rows say of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

import pandas as pd

from perfkit_core.errors import UsageError
from perfkit_core.language.units import SIZES, TIMES, family, writable_units
from perfkit_core.model.columns import DEVICE
from perfkit_core.plugins.contracts import View

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
