"""The leaves of both sides as one tree, each level of which sums to the difference above it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core import grouped, nesting
from perfkit_core.comparison.attribution.effects import count_effects, shared_out
from perfkit_core.comparison.attribution.leaves import CATEGORY, Leaves
from perfkit_core.schema import NO_ROW
from perfkit_core.trace import BoolArray, IntArray
from perfkit_core.trees import preorder

OPERATOR, EVENT = "operator", "event"
SIDES: Final = ("base", "other")


@dataclass(frozen=True, slots=True)
class Tree:
    """Nodes, parents before their children: ``level`` and ``name``, ``parent`` (-1: top) and columns of numbers."""

    level: np.ndarray
    name: np.ndarray
    parent: IntArray
    numbers: pd.DataFrame


def merged(base: Leaves, other: Leaves) -> pd.DataFrame:
    """The leaves of both: category, levels, then {side}_ns (of a mean window, integers that sum to it), {side}_calls
    (of the event) and {side}_operator_calls (of its operator; missing where it is none), of all windows."""
    levels = [name for name in base.times.columns if name != "ns"]
    both = _joined(base.times, other.times, levels, "ns").sort_values(levels, kind="stable", ignore_index=True)
    for side, leaves in zip(SIDES, (base, other), strict=True):
        both[f"{side}_ns"] = shared_out(both[f"{side}_ns"], len(leaves.windows))
    both = _with_calls(both, base.events, other.events, levels[1:], "calls")
    return _with_calls(both, base.operators, other.operators, levels[1:-1], "operator_calls")


def _with_calls(
    leaves: pd.DataFrame, base: pd.DataFrame, other: pd.DataFrame, levels: list[str], name: str
) -> pd.DataFrame:
    calls = _joined(base, other, levels, "calls")
    renamed = {f"{side}_calls": f"{side}_{name}" for side in SIDES}
    return leaves.merge(calls.rename(columns=renamed), on=levels, how="left", sort=False)


def _joined(base: pd.DataFrame, other: pd.DataFrame, levels: list[str], number: str) -> pd.DataFrame:
    tables = [
        _summed(table, levels, number, f"{side}_{number}") for side, table in zip(SIDES, (base, other), strict=True)
    ]
    joined = tables[0].merge(tables[1], on=levels, how="outer", sort=False)
    numbers = {f"{side}_{number}": np.int64 for side in SIDES}
    filled: pd.DataFrame = joined.fillna(dict.fromkeys(numbers, 0)).astype(numbers)
    return filled


def _summed(table: pd.DataFrame, levels: list[str], number: str, name: str) -> pd.DataFrame:
    sums: pd.DataFrame = table.groupby(levels, sort=False)[[number]].sum().reset_index()
    return sums.rename(columns={number: name})


def tree(leaves: pd.DataFrame, base_windows: int, other_windows: int) -> Tree:
    """Nodes for every prefix of the levels, in preorder, the largest differences first. Numbers: {side}_ns,
    {side}_calls (-1 above operators, and where calls are not counted), count_effect_ns."""
    levels = [name for name in leaves.columns if not name.endswith(("_ns", "_calls"))]
    parts, parents = [], np.full(len(leaves), NO_ROW, np.int64)
    offset = 0
    for depth, level in enumerate(levels):
        code, first = grouped.distinct([parents, leaves[level].to_numpy(object)], len(leaves))
        numbers = _numbers(leaves, code, first, levels[depth:], (base_windows, other_windows))
        parts.append(
            (np.full(len(first), level, object), leaves[level].to_numpy(object)[first], parents[first], numbers)
        )
        parents = code + offset
        offset += len(first)
    names, texts, above = (np.concatenate([part[k] for part in parts]) for k in range(3))
    numbers = pd.concat([part[3] for part in parts], ignore_index=True)
    return _in_order(_summed_up(Tree(names, texts, above, numbers)))


def _numbers(
    leaves: pd.DataFrame, code: IntArray, first: IntArray, levels: list[str], windows: tuple[int, int]
) -> pd.DataFrame:
    """Of the nodes of a level; ``levels``: that one and those below."""
    sums = {f"{side}_ns": grouped.sums(code, len(first), leaves[f"{side}_ns"].to_numpy()) for side in SIDES}
    table = pd.DataFrame(sums)
    if levels[0] not in (OPERATOR, EVENT):
        return table.assign(base_calls=-1, other_calls=-1, count_effect_ns=0)
    calls = {side: _calls(leaves, code, first, side, levels[0]) for side in SIDES}
    uncounted = (calls["base"] == 0) & (calls["other"] == 0)
    effects = count_effects(sums["base_ns"], sums["other_ns"], calls["base"], calls["other"], *windows)
    shown = {f"{side}_calls": np.where(uncounted, -1, calls[side]) for side in SIDES}
    return table.assign(**shown, count_effect_ns=effects)


def _calls(leaves: pd.DataFrame, code: IntArray, first: IntArray, side: str, level: str) -> IntArray:
    """Of an operator: its own, where it was recorded, else those of its events."""
    events = grouped.sums(code, len(first), leaves[f"{side}_calls"].fillna(0).to_numpy(np.int64))
    if level == EVENT:
        return events
    known = leaves[[f"{each}_operator_calls" for each in SIDES]].fillna(0).to_numpy(np.int64)[first]
    return np.where(known.any(axis=1), known[:, SIDES.index(side)], events)


def _summed_up(found: Tree) -> Tree:
    """Count effects above operators: those of the operators below."""
    own = np.where(found.level == EVENT, 0, found.numbers["count_effect_ns"].to_numpy())
    total = nesting.sum_up(found.parent, own)
    effect = np.where(found.level == EVENT, found.numbers["count_effect_ns"], total)
    return Tree(found.level, found.name, found.parent, found.numbers.assign(count_effect_ns=effect))


def _in_order(found: Tree) -> Tree:
    """In preorder, siblings by the size of their difference, then by name."""
    difference = (found.numbers["other_ns"] - found.numbers["base_ns"]).abs().to_numpy()
    by_name = np.argsort(np.lexsort((found.name.astype(str), found.parent)), kind="stable")
    rank = np.empty(len(difference), np.int64)
    rank[np.lexsort((-by_name, difference))] = np.arange(len(difference))
    order = preorder(found.parent, rank)
    number = np.empty(len(order) + 1, np.int64)
    number[order], number[-1] = np.arange(len(order)), NO_ROW
    parent = number[found.parent[order]]
    return Tree(found.level[order], found.name[order], parent, found.numbers.iloc[order].reset_index(drop=True))


def is_leaf(parent: IntArray) -> BoolArray:
    """True for nodes without children."""
    mask = np.ones(len(parent), np.bool_)
    mask[parent[parent != NO_ROW]] = False
    return mask


__all__ = ["CATEGORY", "EVENT", "OPERATOR", "SIDES", "Tree", "is_leaf", "merged", "tree"]
