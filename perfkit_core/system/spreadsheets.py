"""Cells of CSV files. A spreadsheet runs a text that begins with certain characters as a formula.

An apostrophe before such a text prevents this, as the OWASP recommends (CSV injection). Numbers are not changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_BEGINNINGS: Final = "=+-@\t\r"
_PATTERN: Final = r"^([=+\-@\t\r])"


def cell(value: Any) -> Any:
    """Return the value of a cell for a CSV file."""
    return f"'{value}" if isinstance(value, str) and value.startswith(tuple(_BEGINNINGS)) else value


def cells(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table for a CSV file, with its column names."""
    return table.map(cell).rename(columns=cell)


def texts(column: pa.Array) -> pa.Array:
    """Return a column of texts for a CSV file."""
    import pyarrow.compute as pc

    return pc.replace_substring_regex(column, pattern=_PATTERN, replacement=r"'\1")
