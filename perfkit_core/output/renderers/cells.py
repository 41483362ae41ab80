"""Convert the cells of tables to text for people or to plain Python values.

Plain values are exact. For example, pandas stores integers with missing values as floats; here they become integers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

from perfkit_core.base.language.messages import Message, Text, english, render, say, worded
from perfkit_core.base.system.paths import printable
from perfkit_core.trace.model.columns import CALLS, Column
from perfkit_core.trace.model.report_data import Section

MISSING: Final = "-"


def text(value: Any, column: Column | None = None) -> str:
    """Return the text of a cell that is not a number. Fixed words of a column are translated; names are not."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return say("yes") if value else say("no")
    return visible(worded(value if isinstance(value, str) else render(value), column))


def visible(text: Text) -> str:
    """Return the text with unprintable characters escaped."""
    return printable(render(text))


def records(section: Section) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the column names and the rows of the table. The values are None, bool, int, float, str, list or dict."""
    names = [str(name) for name in section.table.columns]
    converted = [cells(section.column(name), section.table[name]) for name in names]
    return names, list(zip(*converted, strict=True))


def cells(column: Column, values: pd.Series) -> list[Any]:
    """Return the values of a column. Integral floats in columns of times, sizes and calls are returned as integers."""
    result = [plain(value) for value in values.to_list()]
    counted = column.unit in ("ns", "bytes", "bytes_per_s") or column.name == CALLS.name
    if counted and all(value is None or (isinstance(value, float) and value.is_integer()) for value in result):
        return [None if value is None else int(value) for value in result]
    return result


def plain(value: Any) -> Any:
    """Return a pandas or numpy value as a JSON type. NA, NaN, NaT and infinities become None."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, Message):
        return english(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "isoformat") and not pd.isna(value):
        return value.isoformat()
    return None if pd.api.types.is_scalar(value) and pd.isna(value) else str(value)
