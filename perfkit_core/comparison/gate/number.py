"""What a condition asks of a view: one number, and what its name and its rows say of it."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from perfkit_core.plugins.contracts import View
from perfkit_core.table_columns import DEVICE


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
