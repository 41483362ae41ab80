"""The difference between two steps as a tree. Its rows without children sum exactly to the difference.

Each nanosecond of a step counts for one event, and so for one category, phase, layer, family and operator. Layers are
used only if both runs have them.

Each difference is the sum of two effects. c₀ and c₁ are the numbers of calls in base and other, and a₀ and a₁ are the
times per call:

- The count effect is due to more or fewer calls: (c₁ − c₀)(a₀ + a₁)/2. It is rounded to ns.
- The per-call effect is due to slower or faster calls: (a₁ − a₀)(c₀ + c₁)/2. It is the rest of the difference.

If only one side has calls, the entire difference is count effect. Swapping the sides only changes the signs.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import groupby, nesting, trees
from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.base.language.messages import SIDES, mark
from perfkit_core.compare.align.align import Alignment
from perfkit_core.compare.attribute.leaves import CATEGORY, Leaves, leaves
from perfkit_core.compare.pieces import BUSY, shared_out
from perfkit_core.compare.windows import Windows
from perfkit_core.views.steps import activity

STEP, RUN = "step", "run"
OPERATOR, EVENT = "operator", "event"
BESIDE_MEDIAN: Final = mark("(median minus mean of the middle steps)")
COLUMNS: Final = (
    "depth", "level", "name", "place", "parent", "base_calls", "other_calls", "base_ns", "other_ns", "difference_ns",
    "count_effect_ns", "per_call_effect_ns", "explained_ratio",
)  # fmt: skip
_MOST_STEPS: Final = 100_000
"""Calls per step are floats, which are converted back to fractions (calls / steps). This is the largest denominator."""


def attribute(alignment: Alignment) -> pd.DataFrame:
    """Attribute the difference between the median steps of two aligned runs, other minus base.

    Return a tree in preorder, with the largest differences first. The rows without children sum to the first row. The
    table is empty if a side has no events. Columns:

    - depth; name; parent: the row of the parent in this table, -1 at the top.
    - level: step (run if a side has no steps), category, phase, layer, family, operator, event (kernel on a device).
    - place: device or host, missing at the top.
    - base_calls, other_calls: calls per step, missing above operators.
    - base_ns, other_ns, difference_ns: time per step, or of the run.
    - count_effect_ns, per_call_effect_ns: the parts of the difference. Above operators, they are sums over operators.
    - explained_ratio: cumulative share of the total difference, missing if the total is 0.
    """
    sides, traces = alignment.windows, alignment.traces
    if not all(map(len, sides)):
        return pd.DataFrame(columns=list(COLUMNS))
    layers = alignment.layers if all(alignment.layers) else ({}, {})
    nodes = tree(*(leaves(*side) for side in zip(traces, sides, alignment.pieces, layers, strict=True)))

    top = STEP if alignment.per_step else RUN
    beside = [windows.typical_ns - windows.mean_ns for windows in sides]
    last = [(CATEGORY, BESIDE_MEDIAN, 0, beside)] if any(beside) else []
    ends = [(top, top, NO_ROW, [windows.typical_ns for windows in sides]), *last]
    numbers = pd.DataFrame(
        [
            {"base_ns": first, "other_ns": second, "base_calls": -1, "other_calls": -1, "count_effect_ns": 0}
            for *_, (first, second) in ends
        ]
    )
    numbers.loc[0, "count_effect_ns"] = int(nodes.numbers["count_effect_ns"][nodes.parent == NO_ROW].sum())
    rooted = Tree(
        np.array([top, *nodes.level, *(row[0] for row in last)], object),
        np.array([top, *nodes.name, *(row[1] for row in last)], object),
        np.array([NO_ROW, *(nodes.parent + 1), *(row[2] for row in last)], np.int64),
        pd.concat([numbers[:1], nodes.numbers, numbers[1:]], ignore_index=True),
    )
    return _table(rooted, sides, any(map(activity.has_device_work, traces)))


@dataclass(frozen=True, slots=True)
class Tree:
    """The nodes of a tree. Parents precede their children."""

    level: np.ndarray
    name: np.ndarray
    parent: IntArray  # The position of the parent, -1 at the top.
    numbers: pd.DataFrame  # Times, calls and count effect, one row per node.


def _table(nodes: Tree, sides: tuple[Windows, Windows], on_device: bool) -> pd.DataFrame:
    numbers, parent = nodes.numbers, nodes.parent
    difference = (numbers["other_ns"] - numbers["base_ns"]).to_numpy(np.int64)
    depth = nesting.sum_down(parent, (parent != NO_ROW).astype(np.int64))
    # Each row has the place (device or host) of its category.
    device = np.isin(nodes.name, BUSY) & (nodes.level == CATEGORY) & on_device
    host_or_device = np.where(device, "device", "host").astype(object)
    host_or_device[(nodes.level != CATEGORY) | (nodes.name == BESIDE_MEDIAN)] = ""
    host_or_device = host_or_device[np.maximum.accumulate(np.where(depth == 1, np.arange(len(depth)), 0))]
    table = pd.DataFrame(
        {
            "depth": depth,
            "level": np.where((nodes.level == EVENT) & (host_or_device == "device"), "kernel", nodes.level),
            "name": nodes.name,
            "place": pd.Series(host_or_device, dtype=object).replace("", pd.NA),
            "parent": parent,
        }
    )
    for side, windows in zip(SIDES, sides, strict=True):
        calls = numbers[f"{side}_calls"].to_numpy(np.int64)
        table[f"{side}_calls"] = pd.arrays.FloatingArray(calls / windows.count, calls < 0)
    # The explained ratio of a row includes its descendants, which follow it in preorder.
    leaf = np.ones(len(parent), np.bool_)
    leaf[parent[parent != NO_ROW]] = False
    last = np.arange(len(parent)) + nesting.sum_up(parent, np.ones(len(parent), np.int64)) - 1
    explained = np.cumsum(np.where(leaf, difference, 0))[last]
    total = int(difference[0])
    effect = numbers["count_effect_ns"].to_numpy(np.int64)
    return table.assign(
        base_ns=numbers["base_ns"].to_numpy(np.int64),
        other_ns=numbers["other_ns"].to_numpy(np.int64),
        difference_ns=difference,
        count_effect_ns=effect,
        per_call_effect_ns=difference - effect,
        explained_ratio=pd.arrays.FloatingArray(explained / (total or 1), np.full(len(parent), total == 0)),
    )


def tree(base: Leaves, other: Leaves) -> Tree:
    """Build one tree, in preorder, from the leaves of both runs. Of several siblings, the one with the largest
    difference comes first. Calls are -1 on the levels above operators, and for events such as Python frames."""
    table = _merged(base, other)
    levels = [name for name in table.columns if not name.endswith(("_ns", "_calls"))]
    parts, parents, offset = [], np.full(len(table), NO_ROW, np.int64), 0
    for level in levels:
        texts = table[level].to_numpy(object)
        code, first = groupby.distinct([parents, texts], len(table))
        numbers = _numbers(table, code, first, level, (base.windows.count, other.windows.count))
        parts.append((np.full(len(first), level, object), texts[first], parents[first], numbers))
        parents = code + offset
        offset += len(first)
    level_names, name, parent = (np.concatenate([part[k] for part in parts]) for k in range(3))
    numbers = pd.concat([part[3] for part in parts], ignore_index=True)
    # On the levels above operators, the count effect is the sum over the operators below.
    effect, is_event = numbers["count_effect_ns"].to_numpy(), level_names == EVENT
    numbers["count_effect_ns"] = np.where(is_event, effect, nesting.sum_up(parent, np.where(is_event, 0, effect)))

    difference = (numbers["other_ns"] - numbers["base_ns"]).abs().to_numpy()
    order = trees.preorder(parent, trees.heaviest_first(name, difference))
    number = np.empty(len(order) + 1, np.int64)
    number[order], number[-1] = np.arange(len(order)), NO_ROW
    return Tree(level_names[order], name[order], number[parent[order]], numbers.iloc[order].reset_index(drop=True))


def _merged(base: Leaves, other: Leaves) -> pd.DataFrame:
    """Join the leaves of both runs into one table. It has these columns for base, and the same for other:

    - ``base_ns``: mean time of the leaf per window
    - ``base_calls``: calls of the event, summed over all windows
    - ``base_operator_calls``: calls of the operator around the event, summed over all windows
    """
    levels = [name for name in base.times.columns if name != "ns"]
    table = _joined(base.times, other.times, levels, "ns").sort_values(levels, kind="stable", ignore_index=True)
    for side, of_side in zip(SIDES, (base, other), strict=True):
        table[f"{side}_ns"] = shared_out(table[f"{side}_ns"], of_side.windows.count)
    *of_operator, event = (level for level in levels if level not in (CATEGORY, "family"))
    events = _joined(base.events, other.events, [*of_operator, event], "calls")
    operators = _joined(base.operators, other.operators, of_operator, "calls")
    operators = operators.rename(columns={f"{side}_calls": f"{side}_operator_calls" for side in SIDES})
    table = table.merge(events, on=[*of_operator, event], how="left", sort=False)
    return table.merge(operators, on=of_operator, how="left", sort=False)


def _joined(base: pd.DataFrame, other: pd.DataFrame, levels: list[str], number: str) -> pd.DataFrame:
    tables = []
    for side, table in zip(SIDES, (base, other), strict=True):
        sums = table.groupby(levels, sort=False)[[number]].sum().reset_index()
        tables.append(sums.rename(columns={number: f"{side}_{number}"}))
    joined = tables[0].merge(tables[1], on=levels, how="outer", sort=False)
    numbers = {f"{side}_{number}": np.int64 for side in SIDES}
    filled: pd.DataFrame = joined.fillna(dict.fromkeys(numbers, 0)).astype(numbers)
    return filled


def _numbers(
    table: pd.DataFrame, code: IntArray, first: IntArray, level: str, windows: tuple[int, int]
) -> pd.DataFrame:
    times = {side: groupby.sums(code, len(first), table[f"{side}_ns"].to_numpy()) for side in SIDES}
    sums = pd.DataFrame({f"{side}_ns": times[side] for side in SIDES})
    if level not in (OPERATOR, EVENT):
        return sums.assign(base_calls=-1, other_calls=-1, count_effect_ns=0)
    calls = [groupby.sums(code, len(first), table[f"{side}_calls"].fillna(0).to_numpy(np.int64)) for side in SIDES]
    if level == OPERATOR:  # If neither side has calls of the operator, the calls of its events count.
        of_operator = table[[f"{side}_operator_calls" for side in SIDES]].fillna(0).to_numpy(np.int64)[first]
        recorded = of_operator.any(axis=1)
        calls = [np.where(recorded, of_operator[:, index], of_events) for index, of_events in enumerate(calls)]
    counted = (calls[0] != 0) | (calls[1] != 0)
    rows = zip(*(column.tolist() for column in (*times.values(), *calls)), strict=True)
    return sums.assign(
        base_calls=np.where(counted, calls[0], -1),
        other_calls=np.where(counted, calls[1], -1),
        count_effect_ns=np.array([count_effect(t0, t1, c0, c1, *windows) for t0, t1, c0, c1 in rows], np.int64),
    )


def with_effects(table: pd.DataFrame) -> pd.DataFrame:
    """Add the columns count_effect_ns and per_call_effect_ns, computed from the times and the calls per step."""
    effects = []
    calls = (table[f"{side}_calls"].fillna(0).tolist() for side in SIDES)
    for t0, t1, *of_step in zip(table["base_ns"].tolist(), table["other_ns"].tolist(), *calls, strict=True):
        c0, c1 = (Fraction(value).limit_denominator(_MOST_STEPS) for value in of_step)
        effects.append(count_effect(t0, t1, c0.numerator, c1.numerator, c0.denominator, c1.denominator))
    count = np.array(effects, np.int64)
    return table.assign(count_effect_ns=count, per_call_effect_ns=table["other_ns"] - table["base_ns"] - count)


def count_effect(t0: int, t1: int, c0: int, c1: int, n0: int, n1: int) -> int:
    """Return the count effect in ns. ``t`` is the time per step in ns, and ``c`` is the number of calls in ``n`` steps.
    The names end with 0 for base, and with 1 for other."""
    if not c0 or not c1:  # The entire difference is count effect, because 0 calls take no time.
        return t1 - t0 if c0 or c1 else 0
    # The effect is (c₁/n₁ − c₀/n₀) · (t₀n₀/c₀ + t₁n₁/c₁) / 2 with one denominator.
    numerator, denominator = (c1 * n0 - c0 * n1) * (t0 * n0 * c1 + t1 * n1 * c0), 2 * n0 * n1 * c0 * c1
    # Halves are rounded away from zero, so that swapping the sides only changes the sign.
    size = (2 * abs(numerator) + denominator) // (2 * denominator)
    return size if numerator >= 0 else -size
