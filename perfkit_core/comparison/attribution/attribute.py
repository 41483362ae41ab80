"""Where does the difference between two steps come from? A tree whose every level sums to it, to the nanosecond.

The exclusive partition gives each nanosecond of a step to one event of one category; the event has a phase, a layer
(where both runs have layers), a family and an operator. So nothing counts twice, and nothing is left over.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core import nesting
from perfkit_core.analyses.step.activity import has_device_work
from perfkit_core.analyses.step.step_rows import step_rows
from perfkit_core.comparison.alignment.layers import match_layers
from perfkit_core.comparison.attribution.leaves import leaves
from perfkit_core.comparison.attribution.slices import EXCLUSIVE
from perfkit_core.comparison.attribution.steps import Windows, middle_steps, whole_run
from perfkit_core.comparison.attribution.tree import CATEGORY, EVENT, Tree, is_leaf, merged, tree
from perfkit_core.schema import NO_ROW
from perfkit_core.trace import IntArray, Trace

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
