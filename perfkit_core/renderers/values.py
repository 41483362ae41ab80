"""Table cells as plain Python values, exactly: integers stay integers, whatever pandas made of a column with nulls."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from perfkit_core.language import Message, english


def records(table: pd.DataFrame) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names, and rows of None, bool, int, float, str, list and dict."""
    converted = [cells(str(name), table[name]) for name in table.columns]
    return [str(name) for name in table.columns], list(zip(*converted, strict=True))


def cells(name: str, values: pd.Series) -> list[Any]:
    """One column. Counted quantities (``*_ns``, ``*bytes``) that pandas turned into floats are integers again."""
    result = [plain(value) for value in values.to_list()]
    counted = name.endswith(("_ns", "bytes", "bytes_per_s")) or name == "calls"
    if counted and all(value is None or (isinstance(value, float) and value.is_integer()) for value in result):
        return [None if value is None else int(value) for value in result]
    return result


def plain(value: Any) -> Any:
    """A value of pandas or numpy as JSON knows it. NA, NaN, NaT and infinities are None."""
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
