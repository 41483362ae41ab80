"""Tables made of arrays: groups of rows, their sums and statistics, text columns, and concatenated tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.base.algorithms import groupby
from perfkit_core.base.algorithms.arrays import BoolArray, Codes, IntArray
from perfkit_core.base.system import machine
from perfkit_core.trace.model.columns import MAX, MIN, SUM

_GROUPING_BYTES: Final = 24
"""Memory for each row that is grouped."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows grouped by keys. All methods return arrays of shape (groups,)."""

    keys: pd.DataFrame  # one row per group, in the order of the groups' first rows
    code: IntArray  # index of each row's group in `keys`, shape (rows,)

    def __len__(self) -> int:
        return len(self.keys)

    def calls(self) -> IntArray:
        return np.bincount(self.code, minlength=len(self)).astype(np.int64)

    def sum(self, values: npt.NDArray[Any]) -> IntArray:
        return groupby.sums(self.code, len(self), values)

    def known_sum(self, values: IntArray, present: BoolArray) -> pd.arrays.IntegerArray:
        """Return the sums of the known values, or NA if no value is known."""
        return integers(self.sum(np.where(present, values, 0)), self.sum(present) > 0)

    def reduced(self, values: Any, rule: object) -> Any:
        """Return the sum, minimum or maximum of the values of each group, by the rule of a column. If the values are
        nullable, unknown ones do not count, and groups of unknown values have NA."""
        if rule not in (SUM, MIN, MAX):
            raise ValueError(f"values of events cannot be merged by the rule {rule}")
        numbers, present = masked(values)
        if rule == SUM:
            result = self.sum(np.where(present, numbers, 0))
        else:
            limits = np.iinfo(np.int64)
            numbers = np.where(present, numbers, limits.max if rule == MIN else limits.min)
            result = groupby.extremes(self.code, len(self), numbers)[0 if rule == MIN else 1]
        if isinstance(values, np.ndarray):
            return result
        in_any = self.sum(present) > 0
        return integers(np.where(in_any, result, 0), in_any)

    def statistics(self, values: IntArray, prefix: str, summed: BoolArray | None = None) -> dict[str, IntArray]:
        """Return the columns ``total_{prefix}_ns``, ``avg_…`` (the total of a call), ``min_…`` and ``max_…``. The total
        is the sum of the values in the mask ``summed``, of all values by default."""
        total = self.sum(values if summed is None else np.where(summed, values, 0))
        smallest, largest = groupby.extremes(self.code, len(self), values)
        numbers = {"total": total, "avg": rounded_division(total, self.calls()), "min": smallest, "max": largest}
        return {f"{statistic}_{prefix}_ns": column for statistic, column in numbers.items()}


def group(keys: Mapping[str, Any]) -> Groups:
    """Return the groups of rows with equal ``keys``, which are columns of the same length. Missing keys are equal.
    Raises UsageError if the groups would exceed the limit of memory."""
    count = len(next(iter(keys.values()))) if keys else 0
    machine.require(_GROUPING_BYTES * count, "the groups of a table")
    code, first = groupby.distinct(keys.values(), count)
    values = {
        name: key.iloc[first].reset_index(drop=True) if isinstance(key, pd.Series) else key[first]
        for name, key in keys.items()
    }
    return Groups(pd.DataFrame(values), code)


def masked(values: Any) -> tuple[IntArray, BoolArray]:
    """Return values as integers, 0 for unknown ones, and the mask of the known values. Both have the shape of
    ``values``, which may be an array or a Series."""
    present = np.asarray(pd.notna(values), np.bool_)
    if isinstance(values, np.ndarray):
        return values.astype(np.int64, copy=False), present
    return np.asarray(pd.Series(values).where(present, 0), np.int64), present


def integers(values: npt.NDArray[Any], present: BoolArray) -> pd.arrays.IntegerArray:
    """Return Int64 values. Values are NA where ``present`` is false."""
    return pd.arrays.IntegerArray(values.astype(np.int64), ~np.asarray(present, np.bool_))


def rounded_division(total: npt.ArrayLike, count: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return total / count as the nearest integer, or 0 if count is 0, in integer arithmetic. Shapes are broadcast."""
    number = np.asarray(count, np.int64)
    safe = np.maximum(number, 1)
    quotient: npt.NDArray[np.int64] = (2 * np.asarray(total, np.int64) + safe) // (2 * safe)
    return np.where(number > 0, quotient, 0)


def lower_median(values: pd.Series[int]) -> int | None:
    """Return the median of the known values, or None. Of an even number of values, return the lower middle value."""
    ordered = np.sort(values.dropna().to_numpy(np.int64))
    return int(ordered[(len(ordered) - 1) // 2]) if len(ordered) else None


def ratio(part: npt.ArrayLike, total: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return part / total, or 0 if total is 0. The shapes are broadcast."""
    divisor = np.asarray(total, np.float64)
    return np.where(divisor == 0, 0.0, np.asarray(part, np.float64) / np.where(divisor == 0, 1.0, divisor))


def texts(codes: Codes, rows: npt.NDArray[Any]) -> pd.Categorical:
    """Return the texts of ``rows`` as a pandas categorical. Its categories are ``codes.values``. Null becomes NaN."""
    return pd.Categorical.from_codes(codes.codes[rows], categories=pd.Index(codes.values, dtype=object))


def text_column_at(codes: Codes, rows: IntArray) -> pd.Categorical:
    """Return the texts of ``rows`` as :func:`texts` does. A row that is -1 becomes null."""
    return texts(Codes(np.append(codes.codes, -1), codes.values), rows)


def categorical(codes: npt.NDArray[Any], names: Sequence[str | None]) -> pd.Categorical:
    """Return a text column. ``codes`` are indexes into ``names``, or -1 for null. ``names`` may contain duplicates, and
    None for null."""
    values = list(dict.fromkeys(text for text in names if text is not None))
    position: dict[str | None, int] = {text: code for code, text in enumerate(values)}
    table = np.array([*(position.get(text, -1) for text in names), -1], np.int64)
    return pd.Categorical.from_codes(table[codes], categories=pd.Index(values, dtype=object))


def with_columns(table: pd.DataFrame, cells: Mapping[str, Any]) -> pd.DataFrame:
    """Return the table with more columns. ``DataFrame.assign`` would insert one column after the other, which takes
    longer than to compute them if there are many tables of few rows."""
    return pd.DataFrame({**table, **cells})


def frame(rows: Sequence[Mapping[str, Any]], types: Mapping[str, Any]) -> pd.DataFrame:
    """Return a table of the given rows. ``types`` has the columns and their types. For many tables of few rows, this is
    faster than ``DataFrame.astype``."""
    return pd.DataFrame({name: pd.array([row[name] for row in rows], kind) for name, kind in types.items()})


def no_rows(types: Mapping[str, Any]) -> pd.DataFrame:
    return frame((), types)


def without_categoricals(table: pd.DataFrame) -> pd.DataFrame:
    """Replace categoricals by plain texts, so that the table does not depend on its trace. Missing texts become NA."""
    for name, kind in table.dtypes.items():
        if isinstance(kind, pd.CategoricalDtype):
            values = table[name].astype(object)
            table[name] = values.where(values.notna(), pd.NA)
    return table


def in_order_of(table: pd.DataFrame, name: str, order: Iterable[str]) -> pd.DataFrame:
    """Return the rows sorted by the column ``name``. ``order`` lists the values of this column in order."""
    position = {value: number for number, value in enumerate(order)}
    return table.sort_values(name, key=lambda values: values.map(position), kind="stable", ignore_index=True)


def concat(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the concatenation of the tables, with the columns of all tables."""
    parts = [table for table in tables if len(table)] or list(tables[:1])
    if not parts:
        return pd.DataFrame()
    types: dict[Any, Any] = {}  # common type of each column
    for table in parts:
        for name, kind in table.dtypes.items():
            both = (types.setdefault(name, kind), kind)
            if both[0] != kind and all(pd.api.types.is_integer_dtype(dtype) for dtype in both):
                types[name] = pd.Int64Dtype()
            elif both[0] != kind:
                numeric = all(pd.api.types.is_numeric_dtype(dtype) for dtype in both)
                types[name] = pd.Float64Dtype() if numeric else np.dtype(object)
    for number, table in enumerate(parts):
        other = [name for name, kind in table.dtypes.items() if types[name] != kind]
        if other:
            parts[number] = table.copy(deep=False)  # copies only changed columns, unlike DataFrame.astype
            for name in other:
                parts[number][name] = table[name].astype(types[name])
    result = pd.concat(parts, ignore_index=True)
    for name in result.columns:
        if result[name].dtype == object:  # missing texts are NA in all tables
            result[name] = result[name].where(result[name].notna(), pd.NA)
    return result
