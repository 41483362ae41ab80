"""Small helpers that make tables out of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.trace import Codes


def statistics(keys: Mapping[str, Any], values: npt.ArrayLike, prefix: str) -> pd.DataFrame:
    """Group by ``keys``: columns calls, total_{prefix}_ns, avg_…, min_…, max_…; keys as columns, in order of size."""
    frame = pd.DataFrame({**keys, "value": values})
    grouped = frame.groupby(list(keys), sort=False, dropna=False, observed=True)["value"]
    table = grouped.agg(["count", "sum", "min", "max"]).reset_index()
    table = table.rename(
        columns={"count": "calls", "sum": f"total_{prefix}_ns", "min": f"min_{prefix}_ns", "max": f"max_{prefix}_ns"}
    )
    average = rounded_division(table[f"total_{prefix}_ns"].to_numpy(), table["calls"].to_numpy())
    table[f"avg_{prefix}_ns"] = average
    return table[[*keys, "calls", *(f"{name}_{prefix}_ns" for name in ("total", "avg", "min", "max"))]]


def rounded_division(total: npt.NDArray[Any], count: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """total / count to the nearest integer, in integers; 0 where count is 0."""
    safe = np.maximum(count, 1).astype(np.int64)
    quotient: npt.NDArray[np.int64] = (2 * total.astype(np.int64) + safe) // (2 * safe)
    return np.where(count > 0, quotient, 0)


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
