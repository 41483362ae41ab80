"""What a condition asks of a view: one number, and what its name and its rows say of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pandas as pd

from perfkit_core.plugins.contracts import View
from perfkit_core.schema import DEVICE_WORK

_EXACT: Final = ("calls", "steps", "blocks", "allocations", "frees", "bytes", "flops")
"""Ends of the columns that a process repeats exactly: no noise but what the samples show."""
_EXTREMES: Final = frozenset(("min", "max", "peak"))
"""Words in the names of columns."""
_OF_DEVICES: Final = ("kernels", "memcpy", "device")
"""Views of nothing but device work."""
_DEVICE_ROWS: Final = {"place": ("device",), "kind": DEVICE_WORK, "category": ("device_compute", "exposed_copy")}
"""Columns, and what they say of rows in which a device works. Exposed communication is a host's, too."""


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
        return self.column in (*self.view.per_step, *self.view.adds_up)

    @property
    def exact(self) -> bool:
        """Whether a process repeats it exactly."""
        return self.column.endswith(_EXACT)

    @property
    def of_capture(self) -> bool:
        """Whether only the whole capture tells it."""
        return self.view.of_capture is not None or not _EXTREMES.isdisjoint(self.column.split("_"))

    @property
    def none_is_zero(self) -> bool:
        """Whether a row that is missing has none of it. What does not add up has no number without a row, neither
        where there are several rows nor where there are none yet."""
        return self.sums or (self.row is not None and self.view.of_capture is not None and self.exact)

    def on_device(self, rows: pd.DataFrame) -> bool:
        """Whether only devices work in what is counted; ``rows``: those that it is of."""
        if "device" in self.column or self.view.name in _OF_DEVICES:
            return True
        told = (name in rows and rows[name].isin(known).all() for name, known in _DEVICE_ROWS.items())
        return len(rows) > 0 and "cpu" not in self.column and any(told)
