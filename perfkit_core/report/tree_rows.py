"""Rows of a printed tree: preorder, with a column ``depth``. Which row is below which, and what is left of a tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core import nesting
from perfkit_core.trace import BoolArray, IntArray
from perfkit_core.trees import preorder


def parents(depth: IntArray) -> IntArray:
    """Row of the parent of each row (-1: root), from the depths of a tree in preorder, shape (rows,)."""
    parent = np.full(len(depth), -1, np.int64)
    path: list[int] = []
    for row, level in enumerate(depth.tolist()):
        del path[level:]
        parent[row] = path[-1] if path else -1
        path.append(row)
    return parent


def topmost(parent: IntArray, wanted: BoolArray) -> IntArray:
    """Row of the topmost wanted ancestor-or-self of each row, -1 where there is none."""
    return nesting.first_on_path(parent, np.where(wanted, np.arange(len(parent)), -1))


def kept(table: pd.DataFrame, parent: IntArray, keep: BoolArray) -> pd.DataFrame:
    """The rows to keep; a row moves up by the rows above it that go."""
    depth = nesting.sum_down(parent, keep.astype(np.int64)) - 1
    result = table[keep].reset_index(drop=True)
    result["depth"] = depth[keep]
    return result


def sorted_siblings(table: pd.DataFrame, column: str, ascending: bool) -> pd.DataFrame:
    """The tree with the rows below each row sorted by a column; unknown comes last, ties keep their order."""
    codes = pd.factorize(table[column], sort=True)[0].astype(np.int64)  # -1: unknown
    weight = np.where(codes < 0, -len(table), -codes if ascending else codes)
    order = preorder(parents(table["depth"].to_numpy(np.int64)), weight)
    return table.iloc[order].reset_index(drop=True)


def without(table: pd.DataFrame, parent: IntArray, gone: BoolArray, summed: Mapping[str, str]) -> pd.DataFrame:
    """The tree with the sums in it less what the rows that go have themselves. ``summed``: column that holds the sum of
    a row and all below it → column of the row's own part. Never below 0, where the rows that go overlap each other."""
    result = table.copy()
    for total, own in summed.items():
        if total in table.columns and own in table.columns:
            share = table[own].dtype.kind == "f"
            values = table[own].fillna(0).to_numpy(np.float64 if share else np.int64)
            result[total] = (table[total] - _below(parent, np.where(gone, values, 0))).clip(lower=0)
    return result


def _below(parent: IntArray, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Each row's value plus those of all rows below it, in their own type. Needs parent < row."""
    for row in range(len(parent) - 1, -1, -1):
        if parent[row] >= 0:
            values[parent[row]] += values[row]
    return values
