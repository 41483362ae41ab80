"""Small helpers that make tables out of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.algorithms import groupby
from perfkit_core.algorithms.arrays import BoolArray, Codes, IntArray


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows that share their keys. ``keys``: one row a group, in order of first appearance; ``code``: group of each row,
    shape (rows,). All results have shape (groups,)."""

    keys: pd.DataFrame
    code: IntArray

    def __len__(self) -> int:
        return len(self.keys)

    def calls(self) -> IntArray:
        """Rows of each group."""
        return np.bincount(self.code, minlength=len(self)).astype(np.int64)

    def sum(self, values: npt.NDArray[Any]) -> IntArray:
        """Sum of ``values`` (shape (rows,))."""
        return groupby.sums(self.code, len(self), values)

    def known_sum(self, values: IntArray, known: BoolArray) -> pd.arrays.IntegerArray:
        """Sum of the values that are known; NA where none is."""
        return integers(self.sum(np.where(known, values, 0)), self.sum(known) > 0)

    def smallest(self, values: IntArray) -> IntArray:
        """Minimum of ``values``."""
        return groupby.extremes(self.code, len(self), values)[0]

    def largest(self, values: IntArray) -> IntArray:
        """Maximum of ``values``."""
        return groupby.extremes(self.code, len(self), values)[1]

    def statistics(self, values: IntArray, prefix: str) -> dict[str, IntArray]:
        """total_{prefix}_ns, avg_… (to the nearest integer), min_…, max_…"""
        total = self.sum(values)
        found = (total, rounded_division(total, self.calls()), *groupby.extremes(self.code, len(self), values))
        return {f"{what}_{prefix}_ns": each for what, each in zip(("total", "avg", "min", "max"), found, strict=True)}


def group(keys: Mapping[str, Any]) -> Groups:
    """The groups of rows with equal ``keys`` (columns of one length); missing is a key of its own."""
    rows = len(next(iter(keys.values()))) if keys else 0
    code, first = groupby.distinct(keys.values(), rows)
    return Groups(pd.DataFrame({name: _taken(column, first) for name, column in keys.items()}), code)


def _taken(column: Any, rows: IntArray) -> Any:
    return column.iloc[rows].reset_index(drop=True) if isinstance(column, pd.Series) else column[rows]


def integers(values: npt.NDArray[Any], known: BoolArray) -> pd.arrays.IntegerArray:
    """Int64 with NA where not ``known``."""
    return pd.arrays.IntegerArray(values.astype(np.int64), ~np.asarray(known, np.bool_))


def rounded_division(total: npt.ArrayLike, count: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """total / count to the nearest integer, in integers; 0 where count is 0. Of shapes that broadcast."""
    known = np.asarray(count, np.int64)
    safe = np.maximum(known, 1)
    quotient: npt.NDArray[np.int64] = (2 * np.asarray(total, np.int64) + safe) // (2 * safe)
    return np.where(known > 0, quotient, 0)


def lower_median(values: pd.Series[int]) -> int | None:
    """The median of what is known, of an even number the smaller one of the two in the middle; None of nothing."""
    known = np.sort(values.dropna().to_numpy(np.int64))
    return int(known[(len(known) - 1) // 2]) if len(known) else None


def ratio(part: npt.ArrayLike, whole: int) -> npt.NDArray[np.float64]:
    """part / whole, 0 where whole is 0."""
    return np.asarray(part, np.float64) / whole if whole else np.zeros(np.shape(part))


def texts(codes: Codes, rows: npt.NDArray[Any]) -> pd.Categorical:
    """A text column of the chosen rows, as a categorical that shares the distinct values; null is NaN."""
    return pd.Categorical.from_codes(codes.codes[rows], categories=pd.Index(codes.values, dtype=object))


def plain(table: pd.DataFrame) -> pd.DataFrame:
    """Categoricals as plain text, so that a table outlives its trace and joins with others; missing is NA."""
    for name in table.columns:
        if isinstance(table[name].dtype, pd.CategoricalDtype):
            column = table[name].astype(object)
            table[name] = column.where(column.notna(), pd.NA)
    return table
