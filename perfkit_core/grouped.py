"""Which rows have equal keys: rows of several columns as numbers of their groups, without sorting rows or texts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from perfkit_core.trace import IntArray


def distinct(columns: Iterable[Any], rows: int) -> tuple[IntArray, IntArray]:
    """The group of each row (numbered by first appearance), shape (rows,), and the first row of each group.

    Columns are integer, boolean, float or object arrays, categoricals or nullable integers; missing is a value too.
    """
    key, width = np.zeros(rows, np.int64), 1
    for column in columns:
        code, count = _codes(column)
        if not is_dense(width * count, rows):
            key, first = by_appearance(key, width)
            width = len(first)
        key, width = key * count + code, width * count
    return by_appearance(key, width)


def by_appearance(key: IntArray, width: int) -> tuple[IntArray, IntArray]:
    """Keys 0 ≤ k < width renumbered in the order in which they appear, and the row where each does so first."""
    if not is_dense(width, len(key)):
        code = pd.factorize(key)[0].astype(np.int64, copy=False)
        return code, np.flatnonzero(np.diff(np.maximum.accumulate(code), prepend=-1))
    first = first_rows(key, width)
    used = np.flatnonzero(first < len(key))
    used = used[np.argsort(first[used])]
    number = np.empty(width, np.int64)
    number[used] = np.arange(len(used))
    return number[key], first[used]


def first_rows(key: IntArray, width: int) -> IntArray:
    """The first row of each key 0 ≤ k < width, ``len(key)`` where none has it, shape (width,)."""
    first = np.full(width, len(key), np.int64)
    first[key[::-1]] = np.arange(len(key) - 1, -1, -1)  # the last write counts: that of the first row
    return first


def last_rows(key: IntArray, width: int) -> IntArray:
    """The last row of each key 0 ≤ k < width, -1 where none has it, shape (width,)."""
    last = np.full(width, -1, np.int64)
    last[key] = np.arange(len(key))
    return last


def is_dense(width: int, rows: int) -> bool:
    """Whether a table of ``width`` numbers is in proportion to the rows; else they are hashed."""
    return width <= max(4 * rows, 1 << 16)


def sorted_codes(columns: Iterable[IntArray], rows: int) -> tuple[IntArray, IntArray]:
    """As :func:`distinct` for integers, with the groups numbered in the order of their values."""
    columns = list(columns)
    code, first = distinct(columns, rows)
    order = np.lexsort([column[first] for column in reversed(columns)])
    number = np.empty(len(first), np.int64)
    number[order] = np.arange(len(first))
    return number[code], first[order]


def stable_order(key: IntArray, width: int) -> IntArray:
    """Rows sorted by keys 0 ≤ k < width, those of one key in their order; in linear time where there are few keys."""
    return np.argsort(key.astype(np.uint16) if width <= 1 << 16 else key, kind="stable")


def parts(key: IntArray, width: int) -> list[IntArray]:
    """The rows of each key 0 ≤ k < width, in their order."""
    ends = np.cumsum(np.bincount(key, minlength=width))
    return np.split(stable_order(key, width), ends[:-1])[:width]


def ranked(key: IntArray, width: int) -> tuple[IntArray, IntArray]:
    """The distinct keys 0 ≤ k < width in ascending order, and the position among them of each row's key."""
    if not is_dense(width, len(key)):
        found, position = np.unique(key, return_inverse=True)
        return found, position.astype(np.int64, copy=False)
    used = np.zeros(width, np.bool_)
    used[key] = True
    number = np.cumsum(used) - 1
    return np.flatnonzero(used), number[key]


def _codes(column: Any) -> tuple[IntArray, int]:
    """A number below the returned width for each value of a column, missing included."""
    if isinstance(column, pd.Series):
        column = column.array
    if isinstance(column, pd.Categorical):
        return column.codes.astype(np.int64) + 1, len(column.categories) + 1
    if isinstance(column, pd.arrays.IntegerArray):
        unknown = np.asarray(column.isna())
        code, count = _codes(np.where(unknown, 0, column.to_numpy(np.int64, na_value=0)))
        return np.where(unknown, count, code), count + 1
    return _numbers(np.asarray(column))


def _numbers(values: np.ndarray) -> tuple[IntArray, int]:
    if values.dtype.kind in "iu" and len(values):
        low, high = int(values.min()), int(values.max())
        if is_dense(high - low + 1, len(values)):
            return values.astype(np.int64) - low, high - low + 1
    code, found = pd.factorize(values, use_na_sentinel=False)
    return code.astype(np.int64, copy=False), max(len(found), 1)
