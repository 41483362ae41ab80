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

STEP_TIME: Final = "step_time"
CHANGE: Final = "change"
DIFFERENCE: Final = "difference"
BUDGET: Final = "budget"
_UNITS: Final = {
    "ns": {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9},
    "bytes": {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30},
    "": {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12},
}
"""Units of a limit, by the end of the column's name; "" for all other columns."""
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
    family = "ns" if column is None or column.endswith("_ns") else "bytes" if column.endswith("bytes") else ""
    known = _UNITS[family]
    if unit not in known:
        told, name = ", ".join(filter(None, known)), column or STEP_TIME
        wrong = f"{unit} does not suit {name}" if unit else f"the limit of {name} needs a unit"
        raise UsageError(f"--fail-on {text!r}: {wrong}", f"%, {told}")
    return known[unit]
