"""The rows of several tables, one below the other; those that are the same row, added up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core import trees
from perfkit_core.analyses.tables import Groups, group, integers, rounded_division
from perfkit_core.trace import BoolArray, IntArray

_DEPTH: Final = "depth"


@dataclass(frozen=True, slots=True)
class Nodes:
    """``parent``: of each merged row (-1: none); ``of``: the merged row of each row."""

    parent: IntArray
    of: IntArray


def stacked(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The rows of all tables, in order. Columns are those of any table, in the order of the first."""
    some = [table for table in tables if len(table)] or list(tables[:1])
    if not some:
        return pd.DataFrame()
    types = _types(some)
    return _without_none(pd.concat([_typed(table, types) for table in some], ignore_index=True))


def merged_rows(rows: pd.DataFrame, summed: Sequence[str], described: Sequence[str]) -> tuple[Nodes, pd.DataFrame]:
    """Rows of one path (of one key, where there is no depth) as one row, in the order in which they come first; without
    the shares."""
    parent = parents(rows[_DEPTH].to_numpy(np.int64)) if _DEPTH in rows else np.full(len(rows), -1)
    keys = [str(name) for name in rows if name not in (*summed, *described, _DEPTH) and not _share(str(name))]
    code = group({name: rows[name] for name in keys}).code
    tree = trees.merge(parent, code, np.ones(len(rows), np.bool_))
    first = np.unique(tree.node, return_index=True)[1]
    result = rows.iloc[first].reset_index(drop=True)
    groups = Groups(pd.DataFrame(index=result.index), tree.node)
    calls = _numbers(rows["calls"]) if "calls" in rows else (np.ones(len(rows), np.int64), np.ones(len(rows), np.bool_))
    for name in summed:
        result[name] = _combined(name, rows, groups, calls)
    for name in described:
        result[name] = _first_known(rows[name], tree.node, result[name])
    return Nodes(tree.parent, tree.node), result


def parents(depth: IntArray) -> IntArray:
    """Row of the parent of each row (-1: root), from the depths of trees in preorder, shape (rows,)."""
    parent = np.full(len(depth), -1, np.int64)
    for level in range(1, int(depth.max(initial=0)) + 1):
        above, rows = np.flatnonzero(depth == level - 1), np.flatnonzero(depth == level)
        parent[rows] = above[np.searchsorted(above, rows) - 1]
    return parent


def _combined(name: str, rows: pd.DataFrame, groups: Groups, calls: tuple[IntArray, BoolArray]) -> Any:
    """One column, merged as its name says."""
    if name.startswith("avg_"):
        return _average(name, rows, groups, calls)
    if name.startswith(("min_", "max_")):
        return _extreme(name, rows, groups, calls)
    values, known = _numbers(rows[name])
    return _as_before(rows[name], groups.sum(values), groups.sum(known) > 0)


def _average(name: str, rows: pd.DataFrame, groups: Groups, calls: tuple[IntArray, BoolArray]) -> Any:
    total, _ = _numbers(rows["total_" + name.removeprefix("avg_")])
    count = np.where(_of_one(groups, calls), 1, groups.sum(calls[0]))
    told = groups.sum(~rows[name].isna().to_numpy(np.bool_)) > 0
    return _as_before(rows[name], rounded_division(groups.sum(total), count), told)


def _extreme(name: str, rows: pd.DataFrame, groups: Groups, calls: tuple[IntArray, BoolArray]) -> Any:
    """What has no calls is one thing in all ranks together: its total is its smallest and largest, too."""
    values, known = _numbers(rows[name])
    least = name.startswith("min_")
    far = np.where(known, values, np.iinfo(np.int64).max if least else np.iinfo(np.int64).min)
    found = (groups.smallest if least else groups.largest)(far)
    return _as_before(rows[name], np.where(_of_one(groups, calls), groups.sum(values), found), groups.sum(known) > 0)


def _of_one(groups: Groups, calls: tuple[IntArray, BoolArray]) -> BoolArray:
    """True for merged rows without a number of calls."""
    none: BoolArray = groups.sum(calls[1]) == 0
    return none


def _first_known(column: pd.Series[Any], node: IntArray, first: pd.Series[Any]) -> pd.Series[Any]:
    known = np.flatnonzero(column.notna().to_numpy(np.bool_))
    nodes, at = np.unique(node[known], return_index=True)
    result = first.copy()
    result.iloc[nodes] = column.iloc[known[at]].to_numpy(object) if column.dtype == object else column.iloc[known[at]]
    return result


def _numbers(column: pd.Series[Any]) -> tuple[IntArray, BoolArray]:
    """Integers (0 where unknown) and where they are known."""
    known = column.notna().to_numpy(np.bool_)
    return column.where(known, 0).to_numpy(np.int64), known


def _as_before(column: pd.Series[Any], values: IntArray, known: BoolArray) -> Any:
    """Integers that are nullable where the column was."""
    return values if column.dtype == np.int64 else integers(np.where(known, values, 0), known)


def _share(name: str) -> bool:
    return name == "ratio" or name.endswith("_ratio")


def _types(tables: Sequence[pd.DataFrame]) -> dict[Any, Any]:
    """One type a column: nullable where one of the tables has it so."""
    found: dict[Any, Any] = {}
    for table in tables:
        for name, kind in table.dtypes.items():
            if found.setdefault(name, kind) != kind:
                found[name] = _common(found[name], kind)
    return found


def _typed(table: pd.DataFrame, types: Mapping[Any, Any]) -> pd.DataFrame:
    """The table in these types; itself where it has them. ``DataFrame.astype`` would copy all other columns, too."""
    other = [name for name, kind in table.dtypes.items() if types[name] != kind]
    if other:
        table = table.copy(deep=False)
        for name in other:
            table[name] = table[name].astype(types[name])
    return table


def _common(one: Any, other: Any) -> Any:
    integer = all(pd.api.types.is_integer_dtype(kind) for kind in (one, other))
    if integer:
        return pd.Int64Dtype()
    number = all(pd.api.types.is_numeric_dtype(kind) for kind in (one, other))
    return pd.Float64Dtype() if number else np.dtype(object)


def _without_none(table: pd.DataFrame) -> pd.DataFrame:
    """Missing text is NA, whatever the tables had."""
    for name in table.columns:
        if table[name].dtype == object:
            table[name] = table[name].where(table[name].notna(), pd.NA)
    return table
