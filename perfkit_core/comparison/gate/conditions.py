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
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from perfkit_core.errors import UsageError
from perfkit_core.language.units import SIZES, TIMES, family, writable_units

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
