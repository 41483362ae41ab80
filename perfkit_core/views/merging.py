"""The merge of the tables of several ranks into one table.

Rows with equal keys become one row. In a tree, rows with equal paths become one row. Each column is merged by the rule
in its declaration (:mod:`perfkit_core.trace.model.columns`). Integer sums are exact, so the order of ranks has no
effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import groupby, trees
from perfkit_core.base.algorithms.arrays import BoolArray, IntArray
from perfkit_core.errors import SourceError
from perfkit_core.plugins.contracts import MergedRows, Reduction, View, ViewRequest
from perfkit_core.trace.model.columns import APART, FIRST, MIN, SUM, Average, Column, Share, column
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.tables import Groups, concat, group, integers, ratio, rounded_division

_DEPTH: Final = "depth"
# Keys of the dictionary with one rank's results: its table, and the denominator of each column of shares.
_TABLE: Final = "table"
_WHOLES: Final = "wholes"


def reduction(view: View) -> Reduction:
    """Return the functions that compute a view rank by rank. The default functions list the rows of all ranks."""
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
    columns = (*view.columns, *how.columns)

    def reduce(trace: Trace, request: ViewRequest) -> dict[str, Any]:
        table = (how.partial or view.table)(trace, request)
        wholes: dict[str, int] = {}
        for declared in columns:
            rule = declared.merge
            if declared.name in table and isinstance(rule, Share) and rule.whole is not None:
                denominator = rule.whole(trace, request, table)
                if denominator is not None:
                    wholes[declared.name] = denominator
        return {_TABLE: table, _WHOLES: wholes}

    def merge(partials: Sequence[Any], request: ViewRequest) -> pd.DataFrame:
        wholes: Counter[str] = Counter()
        for partial in partials:
            wholes.update(partial[_WHOLES])
        table = merge_tables([partial[_TABLE] for partial in partials], columns, how.weight, wholes)
        if how.finish is None or (table.empty and how.partial is None):
            return table
        return how.finish(table, request).reset_index(drop=True)

    return Reduction(reduce, merge)


def _listed(table: Callable[[Trace, ViewRequest], pd.DataFrame]) -> Reduction:
    """Return functions that list the rows of all ranks in one table. A first column ``rank`` is added if missing."""

    def reduce(trace: Trace, request: ViewRequest) -> pd.DataFrame:
        rows = table(trace, request)
        if "rank" in rows.columns:
            return rows
        rank = trace.meta.ranks[0] if trace.meta.ranks else pd.NA
        numbers = pd.Series([rank] * len(rows), index=rows.index, dtype="Int64")
        return pd.concat([numbers.rename("rank"), rows], axis=1)

    return Reduction(reduce, lambda partials, request: concat(partials))


def merge_tables(
    tables: Sequence[pd.DataFrame],
    columns: Iterable[Column],
    weight: Sequence[str] = (),
    wholes: Mapping[str, int] | None = None,
) -> pd.DataFrame:
    """Merge the tables of several ranks into one. The result has one row per key, sorted by first occurrence.
    A tree has one row per path, and siblings are sorted by the columns ``weight``. ``wholes`` has the denominator of
    each column of shares, summed over the ranks."""
    rows = concat(tables)
    if rows.empty:
        return rows
    declared = tuple(columns)
    rules = {str(name): column(declared, str(name)).rule for name in rows if name != _DEPTH}
    parent = trees.parents(rows[_DEPTH].to_numpy(np.int64)) if _DEPTH in rows else np.full(len(rows), -1)
    code = group({name: rows[name] for name, rule in rules.items() if rule == APART}).code
    tree = trees.merge(parent, code, np.ones(len(rows), np.bool_))
    result = rows.iloc[np.unique(tree.node, return_index=True)[1]].reset_index(drop=True)
    groups = Groups(pd.DataFrame(index=result.index), tree.node)
    for name, rule in rules.items():
        if rule == FIRST:
            first = rows[name].groupby(tree.node).first()  # the first value that is not missing
            result[name] = first.where(first.notna(), pd.NA) if first.dtype == object else first
        elif rule != APART and not isinstance(rule, Share):
            result[name] = _merged_numbers(rows, name, rule, groups)
    for name, rule in rules.items():
        if isinstance(rule, Share):  # needs the merged sums
            result[name] = _merged_share(rows, result, name, rule, tree, (wholes or {}).get(name))
    if _DEPTH in rows:
        keys = [result[name].astype("Int64").fillna(-1).to_numpy(np.int64) for name in reversed(weight)]
        rank = np.argsort(np.lexsort(keys or [-np.arange(len(result))]))
        result = result.iloc[trees.preorder(tree.parent, rank)]
    return result[list(rows.columns)].reset_index(drop=True)


def _merged_numbers(rows: pd.DataFrame, name: str, rule: Any, groups: Groups) -> Any:
    """Return the merged values of a column (sum, average or extreme, by its ``rule``), NA if no rank has a value."""
    calls, known_calls = _numbers(rows["calls"] if "calls" in rows else pd.Series(1, index=rows.index))
    # an unknown number of calls counts as 1: the total is then also the average, minimum and maximum
    single = groups.sum(known_calls) == 0
    numbers, present = _numbers(rows[name])
    if float(np.abs(numbers.astype(np.float64)).sum()) >= 2**63:
        text = f"the sum of the column {name} over all ranks does not fit in 64 bits"
        raise SourceError(text, "read fewer ranks, or select steps with --step")
    if rule == SUM:
        values = groups.sum(numbers)
    elif isinstance(rule, Average):
        count = np.where(single, 1, groups.sum(calls))
        values = rounded_division(groups.sum(_numbers(rows[rule.of])[0]), count)
    else:
        limits = np.iinfo(np.int64)
        compared = np.where(present, numbers, limits.max if rule == MIN else limits.min)
        smallest, largest = groupby.extremes(groups.code, len(groups), compared)
        values = np.where(single, groups.sum(numbers), smallest if rule == MIN else largest)
    if rows[name].dtype == np.int64:
        return values
    in_any = groups.sum(present) > 0
    return integers(np.where(in_any, values, 0), in_any)


def _merged_share(
    rows: pd.DataFrame, table: pd.DataFrame, name: str, share: Share, tree: trees.Tree, whole_ns: int | None
) -> Any:
    """Return a column of shares, computed from the sums of the merged ``table``. NA if no rank has a value."""
    before = rows[name]
    if share.part is not None:
        part = _numbers(table[share.part])[0]
    else:
        # exact below 2^51: the rounding errors of the division and the product sum to less than 0.5
        parts = before.astype("Float64").fillna(0).to_numpy(np.float64) * _numbers(rows[str(share.column)])[0]
        part = np.zeros(len(table), np.int64)
        np.add.at(part, tree.node, np.rint(parts).astype(np.int64))
    if share.column is not None:
        denominator = _numbers(table[share.column])[0]
    elif whole_ns is not None:
        denominator = np.full(len(table), whole_ns)
    else:
        root = tree.parent < 0
        of = part if share.of is None else _numbers(table[share.of])[0]
        denominator = np.full(len(table), of[root].sum())
        denominator = denominator if not share.above else np.where(root, denominator, part[tree.parent])
    present = np.bincount(tree.node, before.notna(), len(table)) > 0
    values = ratio(part, denominator)
    if isinstance(before.dtype, pd.Float64Dtype):
        return pd.arrays.FloatingArray(np.where(present, values, 0.0), ~present)
    return np.where(present, values, np.nan)


def _numbers(values: pd.Series[Any]) -> tuple[IntArray, BoolArray]:
    present = values.notna().to_numpy(np.bool_)
    return values.where(present, 0).to_numpy(np.int64), present
