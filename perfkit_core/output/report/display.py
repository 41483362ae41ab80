"""Display options: which rows and columns of a view are shown, and in which order, as in TensorFlow's tfprof.

A :class:`~perfkit_core.plugins.contracts.ViewRequest`, in contrast, selects the events that are counted. A tree is a
table with a column ``depth``, in which children follow their parent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import nesting, trees
from perfkit_core.base.algorithms.arrays import BoolArray, IntArray, matches
from perfkit_core.errors import UsageError, spelled_like
from perfkit_core.plugins.contracts import View
from perfkit_core.trace.model.columns import Column, called, keys, label_of

DEPTH = "depth"


@dataclass(frozen=True, slots=True)
class Display:
    """Display options. In ``sort``, ``minimums`` and ``columns``, a grouping such as ``shape`` stands for its columns.

    - ``sort``: column to sort by, in descending order unless ``ascending`` is true
    - ``show``, ``hide``: patterns of rows to show or hide. In a tree they match names, otherwise all texts of a row.
    - ``start``: show only rows of a tree with matching names, and the rows below them
    - ``trim``: hide rows of a tree with matching names, and the rows below them
    - ``depth``: deepest level of a tree to show
    - ``minimums``: column → smallest value to show
    - ``columns``: columns to show after the columns that identify a row; empty means all
    - ``displayed_only``: exclude hidden rows from the sums of a tree, if the view supports this
    - ``limit``: maximum number of rows in text, Markdown and HTML; None means no limit
    - ``average``: count only events in steps, and divide sums by the number of steps
    - ``unit``: unit of all times in text, Markdown and HTML ("ns", "us", "ms" or "s")
    """

    sort: str | None = None
    ascending: bool = False
    show: str | None = None
    hide: str | None = None
    start: str | None = None
    trim: str | None = None
    depth: int | None = None
    minimums: Mapping[str, float] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    displayed_only: bool = False
    limit: int | None = None
    average: bool = False
    unit: str | None = None


def check(tables: Mapping[str, pd.DataFrame], display: Display, columns: Sequence[Column] = ()) -> None:
    """Raise UsageError if no table has a requested column, or if an option requires a tree and no table is a tree.
    ``columns`` are the declared columns of the views."""
    column_names = list(dict.fromkeys(str(name) for table in tables.values() for name in table.columns))
    requested = ([display.sort] if display.sort else []) + list(display.columns) + list(display.minimums)
    for column in requested:
        if not called(columns, column, column_names):
            shown = ", ".join(tables)
            raise UsageError(f"no column {column!r} in {shown}", spelled_like(column, column_names, "columns"))
    of_trees = any(value is not None for value in (display.start, display.trim, display.depth))
    if (of_trees or display.displayed_only) and DEPTH not in column_names:
        hint = "start, trim, depth and displayed-only require a view with a column depth"
        raise UsageError(f"no tree among the views: {', '.join(tables)}", hint)


def displayed(table: pd.DataFrame, view: View, display: Display, by: Sequence[str] = ()) -> pd.DataFrame:
    """Return a view's table, sorted and filtered. ``by`` are its groupings. Raises UsageError for a bad pattern."""
    orders = [name for name in (display.sort, view.sorted_by(table)) if name is not None]
    order = next((columns[0] for name in orders if (columns := called(view.columns, name, table.columns))), None)
    tree = DEPTH in table.columns
    if tree:
        table = table if order is None else sorted_siblings(table, order, display.ascending)
        table = _cut_tree(table, view, display)
    else:
        for pattern, shown in ((display.show, True), (display.hide, False)):
            if pattern is not None:
                mentions = np.zeros(len(table), np.bool_)
                for name in (str(name) for name in table.columns if _is_text(table[name])):
                    texts = [value if isinstance(value, str) else None for value in table[name]]
                    mentions |= matches(texts, pattern)
                table = table[mentions == shown]
        table = table[_large_enough(table, view, display)].reset_index(drop=True)
        if order is not None:
            # Ties are sorted by name, so that their order does not depend on the numbering of events.
            names = [name for name in keys(view.columns, table, by) if name != order and _is_text(table[name])]
            if names:
                table = table.sort_values(names, kind="stable", na_position="last")
            table = table.sort_values(
                order, ascending=display.ascending, kind="stable", na_position="last", ignore_index=True
            )
    chosen = [column for name in display.columns for column in called(view.columns, name, table.columns)]
    if not chosen:  # no columns were requested, or this table has none of the requested ones
        return table
    front = [DEPTH, label_of(table)] if tree else []
    identity = [name for name in keys(view.columns, table, by) if name not in chosen]
    return table[list(dict.fromkeys([*front, *identity, *chosen]))]


def _is_text(column: pd.Series) -> bool:
    return pd.api.types.is_object_dtype(column) or pd.api.types.is_string_dtype(column)


def _large_enough(table: pd.DataFrame, view: View, display: Display) -> BoolArray:
    keep = np.ones(len(table), np.bool_)
    for name, least in display.minimums.items():
        for column in called(view.columns, name, table.columns):
            keep &= (table[column] >= least).fillna(False).to_numpy(np.bool_)
    return keep


def _cut_tree(table: pd.DataFrame, view: View, display: Display) -> pd.DataFrame:
    depth = table[DEPTH].to_numpy(np.int64)
    parent = trees.parents(depth)
    name = table[label_of(table)].astype("string").to_list()
    keep = _large_enough(table, view, display)
    root = np.full(len(table), -1, np.int64)
    if display.start is not None:
        root = topmost(parent, matches(name, display.start))
        keep &= root >= 0
    if display.trim is not None:
        keep &= topmost(parent, matches(name, display.trim)) < 0
    if display.depth is not None:
        keep &= depth - np.where(root >= 0, depth[root], 0) <= display.depth
    for pattern, shown in ((display.show, True), (display.hide, False)):
        if pattern is not None:
            keep &= matches(name, pattern) == shown
    counted = without(table, parent, ~keep, view.summed) if display.displayed_only else table
    return filtered_tree(counted, parent, keep)


def topmost(parent: IntArray, mask: BoolArray) -> IntArray:
    """Return for each row the index of the topmost row in the mask on its path from the root; -1 if there is none."""
    return nesting.first_on_path(parent, np.where(mask, np.arange(len(parent)), -1))


def filtered_tree(table: pd.DataFrame, parent: IntArray, keep: BoolArray) -> pd.DataFrame:
    """Return the rows where ``keep`` is true. The depth of a row decreases by its number of dropped ancestors."""
    depth = nesting.sum_down(parent, keep.astype(np.int64)) - 1
    result = table[keep].reset_index(drop=True)
    result["depth"] = depth[keep]
    return result


def sorted_siblings(table: pd.DataFrame, column: str, ascending: bool) -> pd.DataFrame:
    """Return the tree with siblings sorted by a column. Unknown values come last. Ties keep their order."""
    codes = pd.factorize(table[column], sort=True)[0].astype(np.int64)  # -1 if unknown
    weight = np.where(codes < 0, -len(table), -codes if ascending else codes)
    order = trees.preorder(trees.parents(table["depth"].to_numpy(np.int64)), weight)
    return table.iloc[order].reset_index(drop=True)


def without(table: pd.DataFrame, parent: IntArray, gone: BoolArray, summed: Mapping[str, str]) -> pd.DataFrame:
    """Return the tree after subtracting the values of the rows in ``gone`` from the sums of their ancestors.

    ``summed`` maps columns with sums to columns with the row's own values: ``total_cpu_ns`` → ``self_cpu_ns``. Results
    below 0 become 0, because the times of dropped rows may overlap.
    """
    result = table.copy()
    for total, alone in summed.items():
        if total in table.columns and alone in table.columns:
            share = table[alone].dtype.kind == "f"
            values = table[alone].fillna(0).to_numpy(np.float64 if share else np.int64)
            below = np.where(gone, values, 0)
            for row in range(len(parent) - 1, -1, -1):  # Children are stored after their parent.
                if parent[row] >= 0:
                    below[parent[row]] += below[row]
            result[total] = (table[total] - below).clip(lower=0)
    return result
