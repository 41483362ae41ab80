"""Cells of CSV files. A spreadsheet runs a text that begins with certain characters as a formula.

An apostrophe before such a text prevents this, as the OWASP recommends (CSV injection). Numbers are not changed. Texts
with line breaks are quoted, also those with a bare carriage return, which many readers take for the end of a row."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_BEGINNINGS: Final = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
"""The last four are the full-width forms of the first four."""
_PATTERN: Final = r"^([=+\-@\t\r\n\x{ff1d}\x{ff0b}\x{ff0d}\x{ff20}])"
_RFC: Final = "\r\n"
"""The end of a row. Python's writer quotes texts that contain one of these characters."""


def cell(value: Any) -> Any:
    """Return the value of a cell for a CSV file."""
    return f"'{value}" if isinstance(value, str) and value.startswith(tuple(_BEGINNINGS)) else value


def rows(values: Iterable[Iterable[Any]]) -> str:
    """Return rows of cells as CSV. Rows end in a line feed."""
    lines: list[str] = []
    writer = csv.writer(SimpleNamespace(write=lines.append), lineterminator=_RFC)
    writer.writerows(map(cell, row) for row in values)
    return "".join(f"{line.removesuffix(_RFC)}\n" for line in lines)


def csv_of(table: pd.DataFrame) -> str:
    """Return a table as CSV, with its column names. Rows end in a carriage return and a line feed."""
    text: str = table.map(cell).rename(columns=cell).to_csv(index=False, lineterminator=_RFC)
    return text


def texts(column: pa.Array) -> pa.Array:
    """Return a column of texts for a CSV file."""
    import pyarrow.compute as pc

    return pc.replace_substring_regex(column, pattern=_PATTERN, replacement=r"'\1")
