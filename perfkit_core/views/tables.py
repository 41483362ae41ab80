"""Tables made of arrays, and the tables of several ranks merged into one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.algorithms import groupby, trees
from perfkit_core.algorithms.arrays import BoolArray, Codes, IntArray
from perfkit_core.model.columns import APART, FIRST, MIN, SUM, Average, Column, Share, column
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import MergedRows, Reduction, View, ViewRequest


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


Table = Callable[[Trace, ViewRequest], pd.DataFrame]
_DEPTH: Final = "depth"
_TABLE: Final = "table"
_WHOLES: Final = "wholes"


def reduction(view: View) -> Reduction:
    """How a view is computed for many ranks, one at a time; rows are listed by rank where the view does not say."""
    if isinstance(view.reduction, Reduction):
        return view.reduction
    listed = _listed(view.table)
    if view.reduction is None:
        return listed
    merged = _merged(view, view.reduction)
    if not view.reduction.together_only:
        return merged
    return Reduction(
        lambda trace, request: (listed if request.by else merged).reduce(trace, request),
        lambda partials, request: (listed if request.by else merged).merge(partials, request),
    )


def _merged(view: View, how: MergedRows) -> Reduction:
    """A rank is reduced to its table and to the wholes that its shares are of."""
    columns = (*view.columns, *how.columns)
    table = how.partial or view.table

    def reduce(trace: Trace, request: ViewRequest) -> dict[str, Any]:
        found = table(trace, request)
        shares = {known.name: known.merge for known in columns if known.name in found}
        wholes = {
            name: share.whole(trace, request, found)
            for name, share in shares.items()
            if isinstance(share, Share) and share.whole is not None
        }
        return {_TABLE: found, _WHOLES: {name: whole for name, whole in wholes.items() if whole is not None}}

    def merge(partials: Sequence[Any], request: ViewRequest) -> pd.DataFrame:
        wholes: dict[str, int] = {}
        for partial in partials:
            for name, whole in partial[_WHOLES].items():
                wholes[name] = wholes.get(name, 0) + whole
        found = merge_tables([partial[_TABLE] for partial in partials], columns, how.weight, wholes)
        if how.finish is None or (found.empty and how.partial is None):
            return found
        return how.finish(found, request)

    return Reduction(reduce, merge)


def _listed(table: Table) -> Reduction:
    """The rows of the ranks, one after the other, behind a column rank where they do not tell theirs."""

    def reduce(trace: Trace, request: ViewRequest) -> pd.DataFrame:
        found = table(trace, request)
        if "rank" in found.columns:
            return found
        rank = trace.meta.ranks[0] if trace.meta.ranks else pd.NA
        numbers = pd.Series([rank] * len(found), index=found.index, dtype="Int64")
        return pd.concat([numbers.rename("rank"), found], axis=1)

    return Reduction(reduce, lambda partials, request: stacked(partials))


def merge_tables(
    tables: Sequence[pd.DataFrame],
    columns: Iterable[Column],
    weight: Sequence[str] = (),
    wholes: Mapping[str, int] | None = None,
) -> pd.DataFrame:
    """The tables as one. ``weight``: columns by which the siblings of a tree are ordered; ``wholes``: of the shares
    whose whole is told by a function, summed over the ranks."""
    rows = stacked(tables)
    if rows.empty:
        return rows
    declared = tuple(columns)
    rules = {str(name): column(declared, str(name)).rule for name in rows if name != _DEPTH}
    nodes, result = _merged_rows(rows, rules)
    for name, rule in rules.items():
        if isinstance(rule, Share):
            result[name] = _shares(rows[name], rows, result, nodes, rule, (wholes or {}).get(name))
    ordered = result if _DEPTH not in rows else result.iloc[_printed(nodes, result, weight)]
    return ordered[list(rows.columns)].reset_index(drop=True)


@dataclass(frozen=True, slots=True)
class _Nodes:
    """``parent``: of each merged row (-1: none); ``of``: the merged row of each row."""

    parent: IntArray
    of: IntArray


def _merged_rows(rows: pd.DataFrame, rules: Mapping[str, Any]) -> tuple[_Nodes, pd.DataFrame]:
    """Rows of one path (of one key, where there is no depth) as one row, in the order in which they come first; without
    the shares."""
    parent = parents(rows[_DEPTH].to_numpy(np.int64)) if _DEPTH in rows else np.full(len(rows), -1)
    code = group({name: rows[name] for name, rule in rules.items() if rule == APART}).code
    tree = trees.merge(parent, code, np.ones(len(rows), np.bool_))
    first = np.unique(tree.node, return_index=True)[1]
    result = rows.iloc[first].reset_index(drop=True)
    groups = Groups(pd.DataFrame(index=result.index), tree.node)
    calls = _numbers(rows["calls"]) if "calls" in rows else (np.ones(len(rows), np.int64), np.ones(len(rows), np.bool_))
    for name, rule in rules.items():
        if rule == FIRST:
            result[name] = _first_known(rows[name], tree.node, result[name])
        elif isinstance(rule, Average):
            result[name] = _average(rows[name], rows[rule.of], groups, calls)
        elif rule == SUM:
            values, known = _numbers(rows[name])
            result[name] = _as_before(rows[name], groups.sum(values), groups.sum(known) > 0)
        elif rule != APART and not isinstance(rule, Share):
            result[name] = _extreme(rows[name], groups, calls, least=rule == MIN)
    return _Nodes(tree.parent, tree.node), result


def _average(column: pd.Series[Any], total: pd.Series[Any], groups: Groups, calls: tuple[IntArray, BoolArray]) -> Any:
    """Where a row has no calls, its total is that of one."""
    count = np.where(_of_one(groups, calls), 1, groups.sum(calls[0]))
    known = groups.sum(~column.isna().to_numpy(np.bool_)) > 0
    return _as_before(column, rounded_division(groups.sum(_numbers(total)[0]), count), known)


def _extreme(column: pd.Series[Any], groups: Groups, calls: tuple[IntArray, BoolArray], least: bool) -> Any:
    """What has no calls is one thing in all ranks together: its total is its smallest and largest, too."""
    values, known = _numbers(column)
    far = np.where(known, values, np.iinfo(np.int64).max if least else np.iinfo(np.int64).min)
    found = (groups.smallest if least else groups.largest)(far)
    return _as_before(column, np.where(_of_one(groups, calls), groups.sum(values), found), groups.sum(known) > 0)


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


def _shares(
    before: pd.Series[Any], rows: pd.DataFrame, table: pd.DataFrame, nodes: _Nodes, how: Share, told: int | None
) -> Any:
    """The shares of ``table``, which was merged of ``rows``, from the sums: unknown where no rank knows its own."""
    if how.part is not None:
        part = _numbers(table[how.part])[0]
    else:
        # an integer below 2^51 comes back from its share exactly, as both roundings are below half of 1
        parts = before.astype("Float64").fillna(0).to_numpy(np.float64) * _numbers(rows[str(how.column)])[0]
        part = np.zeros(len(table), np.int64)
        np.add.at(part, nodes.of, np.rint(parts).astype(np.int64))
    whole = _whole(table, nodes, how, part, told)
    known = np.bincount(nodes.of, before.notna(), len(table)) > 0
    values = np.where(whole == 0, 0, part / np.where(whole == 0, 1, whole))
    if isinstance(before.dtype, pd.Float64Dtype):
        return pd.arrays.FloatingArray(np.where(known, values, 0.0), ~known)
    return np.where(known, values, np.nan)


def _whole(table: pd.DataFrame, nodes: _Nodes, how: Share, part: IntArray, told: int | None) -> IntArray:
    if how.column is not None:
        return _numbers(table[how.column])[0]
    if told is not None:
        return np.full(len(table), told)
    root = nodes.parent < 0
    of = part if how.of is None else _numbers(table[how.of])[0]
    of_all = np.full(len(table), of[root].sum())
    return of_all if not how.above else np.where(root, of_all, part[nodes.parent])


def _printed(nodes: _Nodes, table: pd.DataFrame, weight: Sequence[str]) -> IntArray:
    """The nodes in the order of a printed tree."""
    columns = [table[name].astype("Int64").fillna(-1).to_numpy(np.int64) for name in reversed(weight)]
    rank = np.empty(len(table), np.int64)
    rank[np.lexsort(columns or [-np.arange(len(table))])] = np.arange(len(table))
    return trees.preorder(nodes.parent, rank)


def parents(depth: IntArray) -> IntArray:
    """Row of the parent of each row (-1: root), from the depths of trees in preorder, shape (rows,)."""
    parent = np.full(len(depth), -1, np.int64)
    for level in range(1, int(depth.max(initial=0)) + 1):
        above, rows = np.flatnonzero(depth == level - 1), np.flatnonzero(depth == level)
        parent[rows] = above[np.searchsorted(above, rows) - 1]
    return parent


def in_order_of(table: pd.DataFrame, name: str, order: Iterable[str]) -> pd.DataFrame:
    """The rows by the place of their column ``name`` in ``order``."""
    place = {value: number for number, value in enumerate(order)}
    return table.sort_values(name, key=lambda values: values.map(place), kind="stable", ignore_index=True)


def stacked(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The rows of all tables, in order. Columns are those of any table, in the order of the first."""
    some = [table for table in tables if len(table)] or list(tables[:1])
    if not some:
        return pd.DataFrame()
    types = _types(some)
    return _without_none(pd.concat([_typed(table, types) for table in some], ignore_index=True))


def _numbers(column: pd.Series[Any]) -> tuple[IntArray, BoolArray]:
    """Integers (0 where unknown) and where they are known."""
    known = column.notna().to_numpy(np.bool_)
    return column.where(known, 0).to_numpy(np.int64), known


def _as_before(column: pd.Series[Any], values: IntArray, known: BoolArray) -> Any:
    """Integers that are nullable where the column was."""
    return values if column.dtype == np.int64 else integers(np.where(known, values, 0), known)


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
