"""Grouping of rows by several key columns, without sorting rows or texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.base.algorithms.arrays import BLOCK, BoolArray, Int32Array, IntArray, filled
from perfkit_core.base.runtime.compiled import Out, compiled


def distinct(columns: Iterable[Any], rows: int) -> tuple[IntArray, IntArray]:
    """Group rows with equal values in all columns. Return the group of each row, shape (rows,), and the first row of
    each group. Groups are numbered by first appearance. Columns may be integer, boolean, float or object arrays,
    categoricals or nullable integers. A missing value counts as a value."""
    key, width = np.zeros(rows, np.int64), 1
    for column in columns:
        code, count = _codes(column)
        if count == 1:
            continue
        if width == 1:
            key, width = code, count
            continue
        if not is_dense(width * count, rows):  # renumbered, so that the combined key cannot overflow
            key, first = by_appearance(key, width)
            width = len(first)
        key *= count  # in place, to save memory
        key += code
        width *= count
        del code, column
    if width == 1:  # pages of ``key`` that were never written take no memory
        return key, np.zeros(min(rows, 1), np.int64)
    return by_appearance(key, width)


def distinct_in_blocks(
    blocks: Iterable[Sequence[IntArray]], rows: int, width: int
) -> tuple[IntArray, IntArray, IntArray]:
    """Group rows as :func:`distinct` does. Each of the ``blocks`` has ``width`` columns of some rows, so that no column
    is held completely. Return the groups, the first row of each group, and its keys, shape (width, groups)."""
    code = np.zeros(rows, np.int64)  # pages that are never written take no memory
    number: dict[tuple[int, ...], int] = {}
    first_row: list[int] = []
    at = 0
    for columns in blocks:
        group, first = distinct(columns, len(columns[0]))
        keys = list(zip(*(column[first].tolist() for column in columns), strict=True))
        for key, row in zip(keys, first.tolist(), strict=True):
            if number.setdefault(key, len(number)) == len(first_row):
                first_row.append(at + row)
        if len(number) > 1:
            code[at : at + len(group)] = np.array([number[key] for key in keys], np.int64)[group]
        at += len(group)
    return code, np.array(first_row, np.int64), np.array(list(number), np.int64).reshape(len(number), width).T


def by_appearance(key: IntArray, width: int) -> tuple[IntArray, IntArray]:
    """Renumber the keys 0 ≤ k < width by first appearance: [7, 3, 7] becomes [0, 1, 0]. Return the new numbers, shape
    (rows,), and the first row of each. Negative keys are allowed if ``is_dense(width, len(key))``, and become -1."""
    if not is_dense(width, len(key)):
        code = pd.factorize(key)[0].astype(np.int64, copy=False)
        return code, np.flatnonzero(np.diff(np.maximum.accumulate(code), prepend=-1))
    code, first = np.empty(len(key), np.int64), np.empty(min(width, len(key)), np.int64)
    count = _by_appearance(key, np.full(width, -1, np.int64), code, first)
    return code, first[:count].copy()


def sums(code: npt.NDArray[Any], width: int, values: npt.NDArray[Any]) -> IntArray:
    """Return the sum of ``values`` for each code 0 ≤ c < width, shape (width,). Negative codes are ignored."""
    total = filled(width, 0)
    _add(code, values, total)
    return total


def extremes(code: npt.NDArray[Any], width: int, values: IntArray) -> tuple[IntArray, IntArray]:
    """Return the least and the greatest value of each code 0 ≤ c < width, each of shape (width,). For a code without
    rows, the least value is the greatest int64, and the greatest value the least int64. Rows with a negative code are
    ignored."""
    limits = np.iinfo(np.int64)
    least, most = np.full(width, limits.max), np.full(width, limits.min)
    _limit(code, values, least, most)
    return least, most


def first_rows(key: IntArray, width: int) -> IntArray:
    """Return the first row of each key 0 ≤ k < width, shape (width,), or ``len(key)`` for a key without rows."""
    first = np.full(width, len(key), np.int64)
    first[key[::-1]] = np.arange(len(key) - 1, -1, -1)  # written from the last row to the first, so the first row stays
    return first


def is_dense(width: int, rows: int) -> bool:
    """Return whether a table of ``width`` items is small enough for this many rows. If not, callers hash the keys."""
    return width <= max(4 * rows, 1 << 16)


def sorted_codes(columns: Sequence[IntArray], rows: int) -> tuple[IntArray, IntArray]:
    """Group rows as :func:`distinct` does, but number the groups by their sorted keys."""
    code, first = distinct(columns, rows)
    return in_order(code, first, [column[first] for column in columns])


def in_order(code: IntArray, first: IntArray, keys: Sequence[IntArray] | IntArray) -> tuple[IntArray, IntArray]:
    """Return the groups ``code`` and ``first`` of :func:`distinct`, numbered by their sorted ``keys``, which have the
    shape (groups,). ``code`` is changed in place."""
    order = np.lexsort(keys[::-1])
    number = np.empty(len(first), np.int64)
    number[order] = np.arange(len(first))
    if len(first) > 1:  # a single code is 0, and pages of ``code`` that were never written take no memory
        for begin in range(0, len(code), BLOCK):  # in place, to save memory
            code[begin : begin + BLOCK] = number[code[begin : begin + BLOCK]]
    return code, first[order]


def stable_order(key: IntArray, width: int) -> IntArray:
    """Return the rows sorted stably by their keys 0 ≤ k < width, in linear time if width ≤ 2¹⁶."""
    return np.argsort(key.astype(np.uint16) if width <= 1 << 16 else key, kind="stable")


def parts(key: IntArray, width: int) -> list[IntArray]:
    ends = np.cumsum(np.bincount(key, minlength=width))
    return np.split(stable_order(key, width), ends[:-1])[:width]


def ranked(key: IntArray, width: int) -> tuple[IntArray, IntArray]:
    """Return the distinct keys 0 ≤ k < width in ascending order, and for each row the position of its key in them."""
    if not is_dense(width, len(key)):
        distinct_keys, position = np.unique(key, return_inverse=True)
        return distinct_keys, position.astype(np.int64, copy=False)
    used = np.zeros(width, np.bool_)
    used[key] = True
    number = np.cumsum(used) - 1
    return np.flatnonzero(used), number[key]


def _codes(column: Any) -> tuple[IntArray, int]:
    if isinstance(column, pd.Series):
        column = column.array
    if isinstance(column, pd.Categorical):
        return np.add(column.codes, 1, dtype=np.int64), len(column.categories) + 1
    if isinstance(column, pd.arrays.IntegerArray):
        unknown = np.asarray(column.isna())
        code, count = _codes(np.where(unknown, 0, column.to_numpy(np.int64, na_value=0)))
        return np.where(unknown, count, code), count + 1
    values = np.asarray(column)
    if values.dtype.kind in "iu" and len(values):
        low, high = int(values.min()), int(values.max())
        if low == high:
            return np.zeros(len(values), np.int64), 1
        if is_dense(high - low + 1, len(values)):
            return np.subtract(values, low, dtype=np.int64), high - low + 1
    code, distinct_values = pd.factorize(values, use_na_sentinel=False)
    return code.astype(np.int64, copy=False), max(len(distinct_values), 1)


@compiled
def _by_appearance(key: IntArray, number: Out[IntArray], code: Out[IntArray], first: Out[IntArray]) -> int:
    count = 0
    for i in range(len(key)):
        if key[i] < 0:
            code[i] = -1
            continue
        if number[key[i]] < 0:
            number[key[i]] = count
            first[count] = i
            count += 1
        code[i] = number[key[i]]
    return count


@compiled
def _add(code: IntArray | Int32Array, values: IntArray | BoolArray, total: Out[IntArray]) -> None:
    for i in range(len(code)):
        if code[i] >= 0:
            total[code[i]] += values[i]


@compiled
def _limit(code: IntArray, values: IntArray, least: Out[IntArray], most: Out[IntArray]) -> None:
    for i in range(len(code)):
        if code[i] >= 0:
            least[code[i]] = min(least[code[i]], values[i])
            most[code[i]] = max(most[code[i]], values[i])
