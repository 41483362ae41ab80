"""Shares of a merged table, computed again from the sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from perfkit_core.analyses.merging_rows import Nodes
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.trace import BoolArray, IntArray, Trace

Whole = Callable[[Trace, ViewRequest, pd.DataFrame], "int | None"]


@dataclass(frozen=True, slots=True)
class Share:
    """A column that is a share of ``part``, a column, in the sum of it over all rows (of a tree: over its roots).

    Or in another whole: ``of``, the sum of another column; ``above``, the part of the row above, where there is one;
    ``whole``, which tells that of one rank from trace, request and the view's table, and is added up over ranks (None:
    the sum); ``column``, of the same row. Without ``part`` it is the share times that column, which is exact.
    """

    part: str | None = None
    of: str | None = None
    above: bool = False
    whole: Whole | None = None
    column: str | None = None


def shares(
    rows: pd.DataFrame, table: pd.DataFrame, nodes: Nodes, how: Mapping[str, Share], wholes: Mapping[str, int]
) -> dict[str, Any]:
    """The share columns of ``table``, which was merged of ``rows``: unknown where no rank knows its own."""
    found: dict[str, Any] = {}
    for name, share in how.items():
        if name in rows:
            part = _part(rows, table, nodes, name, share)
            whole = _whole(table, nodes, share, part, wholes.get(name))
            known = np.bincount(nodes.of, rows[name].notna(), len(table)) > 0
            found[name] = _like(rows[name], np.where(whole == 0, 0, part / np.where(whole == 0, 1, whole)), known)
    return found


def _part(rows: pd.DataFrame, table: pd.DataFrame, nodes: Nodes, name: str, share: Share) -> IntArray:
    if share.part is not None:
        return _integers(table[share.part])
    # an integer below 2^51 comes back from its share exactly, as both roundings are below half of 1
    told = rows[name].astype("Float64").fillna(0).to_numpy(np.float64) * _integers(rows[str(share.column)])
    part = np.zeros(len(table), np.int64)
    np.add.at(part, nodes.of, np.rint(told).astype(np.int64))
    return part


def _whole(table: pd.DataFrame, nodes: Nodes, share: Share, part: IntArray, told: int | None) -> IntArray:
    if share.column is not None:
        return _integers(table[share.column])
    if told is not None:
        return np.full(len(table), told)
    root = nodes.parent < 0
    of = part if share.of is None else _integers(table[share.of])
    of_all = np.full(len(table), of[root].sum())
    return of_all if not share.above else np.where(root, of_all, part[nodes.parent])


def _integers(column: pd.Series[Any]) -> IntArray:
    return column.where(column.notna(), 0).to_numpy(np.int64)


def _like(column: pd.Series[Any], values: Any, known: BoolArray) -> Any:
    """NA where the column has NA, else NaN."""
    if isinstance(column.dtype, pd.Float64Dtype):
        return pd.arrays.FloatingArray(np.where(known, values, 0.0), ~known)
    return np.where(known, values, np.nan)
