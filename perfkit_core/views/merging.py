"""The merge of the tables of several ranks into one table.

Rows with equal keys become one row. In a tree, rows with equal paths become one row. Each column is merged by the rule
in its declaration (:mod:`perfkit_core.trace.model.columns`). Integer sums are exact, so the order of ranks has no
effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import groupby, trees
from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.base.language.messages import Text
from perfkit_core.errors import SourceError
from perfkit_core.plugins.contracts import Grouped, Listed, Merged, Reduced, TableFunction, View, ViewRequest
from perfkit_core.trace.model.columns import APART, FIRST, MIN, SUM, Average, Column, Share, column
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import grouping, select
from perfkit_core.views.grouping import event_values
from perfkit_core.views.tables import (
    Groups,
    concat,
    group,
    integers,
    masked,
    ratio,
    rounded_division,
    with_columns,
    without_categoricals,
)

_DEPTH: Final = "depth"
_CALLS: Final = "calls"
# Keys of the dictionary with one rank's results: its table, and the denominator of each column of shares.
_TABLE: Final = "table"
_WHOLES: Final = "wholes"


@dataclass(frozen=True, slots=True)
class Reduction:
    """The functions of a view's table, which follow from its kind.

    - ``table(trace, request)`` returns the table of a trace.
    - ``reduce(trace, request)`` returns the partial of a rank or a part, and ``merge(partials, request)`` the table.
    - ``explain(partials)`` returns why the table has no rows, or is None."""

    table: TableFunction
    reduce: Callable[[Trace, ViewRequest], Any]
    merge: Callable[[Sequence[Any], ViewRequest], pd.DataFrame]
    explain: Callable[[Sequence[Any]], Text] | None = None


def reduction(view: View) -> Reduction:
    """Return the functions that compute a view."""
    how = view.computed
    if isinstance(how, Reduced):
        return Reduction(how.of_trace or _of_one_partial(how), how.reduce, how.merge, how.explain)
    if isinstance(how, Listed):
        return Reduction(how.rows, _with_rank(how.rows), lambda partials, request: concat(partials))
    if isinstance(how, Grouped):
        how = _merged_groups(view, how)
    if isinstance(how, Merged):
        return _merged(view.columns, how)
    raise TypeError(f"the table of the view {view.name} is no Listed, Grouped, Merged or Reduced")


def table_of(view: View, trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return the table of a view. Raises UsageError if the request names a grouping that the view does not have, or a
    step that was not recorded."""
    select.check_groupings(view.name, request, view.groupings)
    select.check_steps(request, select.step_numbers(trace))
    return reduction(view).table(trace, request)


def _of_one_partial(how: Reduced) -> TableFunction:
    return lambda trace, request: how.merge([how.reduce(trace, request)], request)


def _with_rank(rows_of: TableFunction) -> TableFunction:
    """Return a function whose table has a column ``rank``. It is the first column if the table has none."""

    def reduce(trace: Trace, request: ViewRequest) -> pd.DataFrame:
        rows = rows_of(trace, request)
        if "rank" in rows.columns:
            return rows
        rank = trace.meta.ranks[0] if trace.meta.ranks else pd.NA
        numbers = pd.Series([rank] * len(rows), index=rows.index, dtype="Int64")
        return pd.concat([numbers.rename("rank"), rows], axis=1)

    return reduce


def _merged(declared: tuple[Column, ...], how: Merged) -> Reduction:
    columns = (*declared, *how.columns)

    def finished(rows: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
        return rows if how.finish is None else how.finish(rows, request).reset_index(drop=True)

    def reduce(trace: Trace, request: ViewRequest) -> dict[str, Any]:
        table = how.rows(trace, request)
        wholes: dict[str, int] = {}
        for declared_column in columns:
            name, rule = declared_column.name, declared_column.merge
            if name in table and isinstance(rule, Share) and rule.whole is not None:
                denominator = rule.whole(trace, request, table)
                if denominator is not None:
                    wholes[name] = denominator
        return {_TABLE: table, _WHOLES: wholes}

    def merge(partials: Sequence[Any], request: ViewRequest) -> pd.DataFrame:
        wholes: Counter[str] = Counter()
        for partial in partials:
            wholes.update(partial[_WHOLES])
        return finished(merge_tables([part[_TABLE] for part in partials], columns, how.siblings, wholes), request)

    def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
        return finished(how.rows(trace, request), request)

    listed = _with_rank(table)
    if not how.together_only:
        return Reduction(table, reduce, merge)
    return Reduction(
        table,
        lambda trace, request: (listed if request.by else reduce)(trace, request),
        lambda partials, request: concat(partials) if request.by else merge(partials, request),
    )


def _merged_groups(view: View, how: Grouped) -> Merged:
    """Return the table of grouped events: rows with keys, and the measures that the columns of the view declare."""
    columns = (*view.columns, *how.columns)

    def rows(trace: Trace, request: ViewRequest) -> pd.DataFrame:
        events = np.flatnonzero(how.events(trace, request) & select.selected(trace, request))
        if isinstance(how.keys, tuple):
            keys = {name: event_values(trace, name, events) for name in how.keys}
            keys |= grouping.keys(trace, request, events, view.groupings)
        else:
            keys = dict(how.keys(trace, request, events))
        groups = group(keys)
        sums: dict[str, Any] = {_CALLS: groups.calls()}
        for name, source in how.values.items():
            values = source(trace, request, events) if callable(source) else event_values(trace, source, events)
            sums[name] = groups.reduced(values, column(columns, name).rule)
        cells: dict[str, Any] = {}
        for measure in columns:
            if isinstance(measure.rule, Average):
                cells[measure.name] = _average(sums[measure.rule.of], groups.calls())
            elif isinstance(measure.rule, Share):
                cells[measure.name] = _share(sums, measure.rule, trace, request)
            elif measure.name in sums:
                cells[measure.name] = sums[measure.name]
        return without_categoricals(with_columns(groups.keys, cells))

    return Merged(rows, how.finish, columns=how.columns)


def _average(total: Any, calls: IntArray) -> Any:
    """Return the averages of calls. They are nullable if the totals are."""
    numbers, present = masked(total)
    average = rounded_division(numbers, calls)
    return average if isinstance(total, np.ndarray) else integers(average, present)


def _share(cells: Mapping[str, Any], share: Share, trace: Trace, request: ViewRequest) -> Any:
    """Return a column of shares in the table of a trace, NaN where the part is unknown."""
    part, present = masked(cells[str(share.part)])
    whole = share.whole(trace, request, pd.DataFrame(cells)) if share.whole is not None else None
    if whole is None:
        whole = (part if share.of is None else masked(cells[share.of])[0]).sum()
    values = ratio(part, whole if share.column is None else masked(cells[share.column])[0])
    return np.where(present, values, np.nan)


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
    rules = {str(name): column(declared, str(name), rows[name]).rule for name in rows if name != _DEPTH}
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
    calls, counted = masked(rows[_CALLS] if _CALLS in rows else pd.Series(1, index=rows.index))
    # an unknown number of calls counts as 1: the total is then also the average, minimum and maximum
    single = groups.sum(counted) == 0
    numbers, present = masked(rows[name])
    if float(np.abs(numbers.astype(np.float64)).sum()) >= 2**63:
        text = f"the sum of the column {name} over all ranks does not fit in 64 bits"
        raise SourceError(text, "read fewer ranks, or select steps with --step")
    if rule == SUM:
        values = groups.sum(numbers)
    elif isinstance(rule, Average):
        count = np.where(single, 1, groups.sum(calls))
        values = rounded_division(groups.sum(masked(rows[rule.of])[0]), count)
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
        part = masked(table[share.part])[0]
    else:
        # exact below 2^51: the rounding errors of the division and the product sum to less than 0.5
        parts = before.astype("Float64").fillna(0).to_numpy(np.float64) * masked(rows[str(share.column)])[0]
        part = np.zeros(len(table), np.int64)
        np.add.at(part, tree.node, np.rint(parts).astype(np.int64))
    if share.column is not None:
        denominator = masked(table[share.column])[0]
    elif whole_ns is not None:
        denominator = np.full(len(table), whole_ns)
    else:
        root = tree.parent < 0
        of = part if share.of is None else masked(table[share.of])[0]
        denominator = np.full(len(table), of[root].sum())
        denominator = denominator if not share.above else np.where(root, denominator, part[tree.parent])
    present = np.bincount(tree.node, before.notna(), len(table)) > 0
    values = ratio(part, denominator)
    if isinstance(before.dtype, pd.Float64Dtype):
        return pd.arrays.FloatingArray(np.where(present, values, 0.0), ~present)
    return np.where(present, values, np.nan)
