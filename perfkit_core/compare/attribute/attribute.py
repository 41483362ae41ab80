"""The difference between two steps as a tree, every level of which sums to it, to the nanosecond."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms import groupby, nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.algorithms.trees import preorder
from perfkit_core.compare.align.layer_match import match_layers
from perfkit_core.compare.attribute.leaves import CATEGORY, Leaves, leaves
from perfkit_core.compare.slices import EXCLUSIVE, Windows, middle_steps, shared_out, whole_run
from perfkit_core.model.trace import Trace
from perfkit_core.views.steps.activity import has_device_work
from perfkit_core.views.steps.step_rows import step_rows

_MOST_STEPS: Final = 100_000
"""Calls of a step are a number of calls by a number of steps; a float of theirs tells both up to so many steps."""


def count_effects(
    base_ns: IntArray, other_ns: IntArray, base_calls: IntArray, other_calls: IntArray, base_n: int, other_n: int
) -> IntArray:
    """The count effect of each row, shape (rows,). Times are of one step, calls of ``base_n`` and ``other_n`` steps."""
    rows = zip(base_ns.tolist(), other_ns.tolist(), base_calls.tolist(), other_calls.tolist(), strict=True)
    return np.array([_count_effect(*row, base_n, other_n) for row in rows], np.int64)


def with_effects(table: pd.DataFrame) -> pd.DataFrame:
    """With count_effect_ns and per_call_effect_ns of each row's own base_ns, other_ns, base_calls and other_calls (of
    one step; missing: not counted)."""
    calls = [[_fraction(value) for value in table[f"{side}_calls"].fillna(0)] for side in ("base", "other")]
    rows = zip(table["base_ns"].tolist(), table["other_ns"].tolist(), *calls, strict=True)
    effects = [_count_effect(t0, t1, c0.numerator, c1.numerator, c0.denominator, c1.denominator)
               for t0, t1, c0, c1 in rows]  # fmt: skip
    count = np.array(effects, np.int64)
    return table.assign(count_effect_ns=count, per_call_effect_ns=table["other_ns"] - table["base_ns"] - count)


def _fraction(calls: float) -> Fraction:
    return Fraction(calls).limit_denominator(_MOST_STEPS)


def _count_effect(t0: int, t1: int, c0: int, c1: int, n0: int, n1: int) -> int:
    if not c0 or not c1:  # all of it: 0 calls took no time
        return t1 - t0 if c0 or c1 else 0
    # (c₁/n₁ − c₀/n₀) · (t₀n₀/c₀ + t₁n₁/c₁) / 2, over one denominator
    return _rounded((c1 * n0 - c0 * n1) * (t0 * n0 * c1 + t1 * n1 * c0), 2 * n0 * n1 * c0 * c1)


def _rounded(numerator: int, denominator: int) -> int:
    """To the nearest integer, halves away from zero: the same for both signs."""
    size = (2 * abs(numerator) + denominator) // (2 * denominator)
    return size if numerator >= 0 else -size


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
    for side, tree in zip(SIDES, (base, other), strict=True):
        both[f"{side}_ns"] = shared_out(both[f"{side}_ns"], len(tree.windows))
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
        code, first = groupby.distinct([parents, leaves[level].to_numpy(object)], len(leaves))
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
    sums = {f"{side}_ns": groupby.sums(code, len(first), leaves[f"{side}_ns"].to_numpy()) for side in SIDES}
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
    events = groupby.sums(code, len(first), leaves[f"{side}_calls"].fillna(0).to_numpy(np.int64))
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


BESIDE_MEDIAN: Final = "(median less mean of the middle steps)"
STEP, RUN = "step", "run"
COLUMNS: Final = (
    "depth", "level", "name", "place", "parent", "base_calls", "other_calls", "base_ns", "other_ns", "difference_ns",
    "count_effect_ns", "per_call_effect_ns", "explained_ratio",
)  # fmt: skip


def attribute(base: Trace, other: Trace, medians: tuple[int, int] | None = None) -> pd.DataFrame:
    """The difference of the median steps, other less base, taken apart: a tree in preorder, largest differences first.
    ``medians``: the times of both sides whose difference it is, where they are not the medians of all steps.

    Columns: depth; level (step, or run where not both have steps; category, phase, layer, family, operator, event or
    kernel); name; place (device or host; missing at the top); parent (row of the table, -1 at the top); base_calls,
    other_calls (a step; missing above operators); base_ns, other_ns, difference_ns; count_effect_ns and
    per_call_effect_ns, which sum to the difference: of events and operators by their own calls, above them the sum over
    the operators; explained_ratio: what the rows without children add up to so far, this row included, by the whole
    difference (missing where there is none). Rows without children sum to the first row. No rows where a side has
    nothing to divide.
    """
    sides = _windows(base, other, medians)
    if not all(len(windows) for windows in sides):
        return pd.DataFrame(columns=list(COLUMNS))
    names = match_layers(base, other)
    layers = (names.base, names.other) if names.known else ({}, {})
    found = [leaves(*side) for side in zip((base, other), sides, layers, strict=True)]
    nodes = tree(merged(*found), *map(len, sides))
    level = STEP if _both_have_steps(base, other) else RUN
    return _table(_rooted(nodes, sides, level), sides, has_device_work(base) or has_device_work(other))


def _both_have_steps(base: Trace, other: Trace) -> bool:
    return bool(len(step_rows(base)) and len(step_rows(other)))


def _windows(base: Trace, other: Trace, medians: tuple[int, int] | None) -> tuple[Windows, Windows]:
    stretch = middle_steps if _both_have_steps(base, other) else whole_run
    found = stretch(base), stretch(other)
    if medians is None:
        return found
    return replace(found[0], typical_ns=medians[0]), replace(found[1], typical_ns=medians[1])


def _rooted(nodes: Tree, sides: tuple[Windows, Windows], level: str) -> Tree:
    """With the step above all, and what its mean lies beside the median, where it does, below it at the end."""
    beside = [windows.typical_ns - windows.mean_ns for windows in sides]
    rows = [(level, level, NO_ROW, [windows.typical_ns for windows in sides])]
    last = [(CATEGORY, BESIDE_MEDIAN, 0, beside)] if any(beside) else []
    extra = [*rows, *last]
    frame = pd.DataFrame(
        [
            {"base_ns": b, "other_ns": o, "base_calls": -1, "other_calls": -1, "count_effect_ns": 0}
            for *_, (b, o) in extra
        ]
    )
    effect = int(nodes.numbers["count_effect_ns"][nodes.parent == NO_ROW].sum())
    frame.loc[0, "count_effect_ns"] = effect
    numbers = pd.concat([frame[:1], nodes.numbers, frame[1:]], ignore_index=True)
    return Tree(
        np.array([level, *nodes.level, *(row[0] for row in last)], object),
        np.array([level, *nodes.name, *(row[1] for row in last)], object),
        np.array([NO_ROW, *(nodes.parent + 1), *(row[2] for row in last)], np.int64),
        numbers,
    )


def _table(nodes: Tree, sides: tuple[Windows, Windows], on_device: bool) -> pd.DataFrame:
    numbers, parent = nodes.numbers, nodes.parent
    difference = (numbers["other_ns"] - numbers["base_ns"]).to_numpy(np.int64)
    depth = _depth(parent)
    place = _places(nodes, depth, on_device)
    level = np.where((nodes.level == EVENT) & (place == "device"), "kernel", nodes.level)
    table = pd.DataFrame({"depth": depth, "level": level, "name": nodes.name, "place": _text(place), "parent": parent})
    for side, windows in zip(("base", "other"), sides, strict=True):
        calls = numbers[f"{side}_calls"].to_numpy(np.int64)
        table[f"{side}_calls"] = pd.arrays.FloatingArray(calls / len(windows), calls < 0)
    effect = numbers["count_effect_ns"].to_numpy(np.int64)
    return table.assign(
        base_ns=numbers["base_ns"].to_numpy(np.int64),
        other_ns=numbers["other_ns"].to_numpy(np.int64),
        difference_ns=difference,
        count_effect_ns=effect,
        per_call_effect_ns=difference - effect,
        explained_ratio=_explained(parent, difference),
    )


def _depth(parent: IntArray) -> IntArray:
    return nesting.sum_down(parent, (parent != NO_ROW).astype(np.int64))


def _places(nodes: Tree, depth: IntArray, on_device: bool) -> np.ndarray:
    """Where the time of a category passes, for it and all below it."""
    device = np.isin(nodes.name, EXCLUSIVE) & (nodes.level == CATEGORY) & on_device
    own = np.where(device, "device", "host").astype(object)
    own[(nodes.level != CATEGORY) | (nodes.name == BESIDE_MEDIAN)] = ""
    top = np.maximum.accumulate(np.where(depth == 1, np.arange(len(depth)), 0))  # the category that a row is below
    return own[top]


def _explained(parent: IntArray, difference: IntArray) -> pd.arrays.FloatingArray:
    """Rows are in preorder: what has come up to the last row below each."""
    own = np.where(is_leaf(parent), difference, 0)
    passed = np.cumsum(own)
    last = np.arange(len(parent)) + nesting.sum_up(parent, np.ones(len(parent), np.int64)) - 1
    whole = int(difference[0])
    return pd.arrays.FloatingArray(passed[last] / (whole or 1), np.full(len(parent), whole == 0))


def _text(values: np.ndarray) -> pd.Series:
    return pd.Series(values, dtype=object).replace("", pd.NA)
