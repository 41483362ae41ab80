"""How do the tables of several ranks become one? Rows that say the same of two ranks are one row; a tree is merged by
its paths. What a column's name says decides how it is merged:

- ``min_…`` and ``max_…``: the smallest and the largest,
- ``avg_x``: ``total_x`` over ``calls``, to the nearest integer (where a row has no calls: ``total_x`` is that of one),
- shares: computed again from the sums, see :class:`Share`,
- every other measure: the sum of what is known.

Sums of integers are exact, so the order in which ranks are merged does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.analyses.merging_rows import Nodes, merged_rows, stacked
from perfkit_core.analyses.merging_shares import Share, shares
from perfkit_core.plugins.contracts import Reduction, ViewRequest
from perfkit_core.trace import IntArray, Trace
from perfkit_core.trees import preorder

Table = Callable[[Trace, ViewRequest], pd.DataFrame]


@dataclass(frozen=True, slots=True)
class Merged:
    """How the columns of a view merge. ``measures``: all that measure; the others tell the rows apart, but for
    ``described``: what is said of a row, by the first rank that knows. ``weight``: columns by which the siblings of a
    tree are ordered, the largest first. ``finish``: what is left to do with the merged table."""

    measures: tuple[str, ...]
    shares: Mapping[str, Share] = field(default_factory=dict)
    described: tuple[str, ...] = ()
    weight: tuple[str, ...] = ()
    finish: Callable[[pd.DataFrame, ViewRequest], pd.DataFrame] = lambda table, request: table


_TABLE: Final = "table"
_WHOLES: Final = "wholes"


def merged(table: Table, how: Merged) -> Reduction:
    """A reduction to the view's own table of each rank, and to the wholes that its shares are of."""

    def reduce(trace: Trace, request: ViewRequest) -> dict[str, Any]:
        found = table(trace, request)
        asked = {name: share.whole for name, share in how.shares.items() if share.whole is not None}
        wholes = {name: whole(trace, request, found) for name, whole in asked.items()}
        return {_TABLE: found, _WHOLES: {name: whole for name, whole in wholes.items() if whole is not None}}

    def merge(partials: Sequence[Any], request: ViewRequest) -> pd.DataFrame:
        tables = [partial[_TABLE] for partial in partials]
        wholes: dict[str, int] = {}
        for partial in partials:
            for name, whole in partial[_WHOLES].items():
                wholes[name] = wholes.get(name, 0) + whole
        found = merge_tables(tables, how, wholes)
        return how.finish(found, request) if len(found) else found

    return Reduction(reduce, merge)


def merge_tables(tables: Sequence[pd.DataFrame], how: Merged, wholes: Mapping[str, int]) -> pd.DataFrame:
    """The tables as one; ``wholes``: of the shares whose whole is told by a function, summed over the ranks."""
    rows = stacked(tables)
    if rows.empty:
        return rows
    nodes, result = merged_rows(rows, [name for name in how.measures if name not in how.shares], how.described)
    for name, values in shares(rows, result, nodes, how.shares, wholes).items():
        result[name] = values
    ordered = result if "depth" not in rows else result.iloc[_printed(nodes, result, how.weight)]
    return ordered[list(rows.columns)].reset_index(drop=True)


def _printed(nodes: Nodes, table: pd.DataFrame, weight: Sequence[str]) -> IntArray:
    """The nodes in the order of a printed tree."""
    columns = [table[name].astype("Int64").fillna(-1).to_numpy(np.int64) for name in reversed(weight)]
    rank = np.empty(len(table), np.int64)
    rank[np.lexsort(columns or [-np.arange(len(table))])] = np.arange(len(table))
    return preorder(nodes.parent, rank)


def whole_of(part: pd.Series[Any], share: pd.Series[Any]) -> int:
    """The whole that a table's shares are of, 0 where none tells. Exact below 2^51 (26 days in ns): the two roundings
    of a division and its inverse are then below half of 1."""
    telling = (share > 0).fillna(False) & part.notna()
    if not telling.any():
        return 0
    shares = share[telling].to_numpy(np.float64)
    return round(int(part[telling].iloc[shares.argmax()]) / float(shares.max()))


def listed(table: Table) -> Reduction:
    """A reduction of a view whose rows tell their rank: the rows of the ranks, one after the other."""
    return Reduction(table, lambda partials, request: stacked(partials))


def listed_by_rank(table: Table) -> Reduction:
    """A reduction of any view: the rows of the ranks, one after the other, behind a column rank."""

    def reduce(trace: Trace, request: ViewRequest) -> pd.DataFrame:
        found = table(trace, request)
        if "rank" in found.columns:
            return found
        rank = trace.meta.ranks[0] if trace.meta.ranks else pd.NA
        numbers = pd.Series([rank] * len(found), index=found.index, dtype="Int64")
        return pd.concat([numbers.rename("rank"), found], axis=1)

    return Reduction(reduce, lambda partials, request: stacked(partials))
