"""Step time, kinds of events and operators of two runs, side by side, for each step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from perfkit_core.analyses import overview, steps
from perfkit_core.analyses.tables import rounded_division
from perfkit_core.compare.canonical import operator_time
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.trace import IntArray, Trace

MATCHED, BASE_ONLY, OTHER_ONLY, UNNAMED = "both", "base only", "other only", "no canonical name"


@dataclass(frozen=True, slots=True)
class Comparison:
    """``other`` against ``base``; a difference is other less base.

    ``step_time``: statistic, base_ns, other_ns, difference_ns, change_ratio.
    ``overview``: kind, place, base_calls, other_calls, base_ns, other_ns, difference_ns, change_ratio.
    ``operators``: name, found ("both", "base only", …), base_calls, other_calls, then for cpu and device: base_…_ns,
    other_…_ns, difference_…_ns.
    Times in overview and operators are for one step where ``per_step`` is true, else for the whole run.
    ``matched_share``: side → {"cpu", "device"} → share of operator time under names that both have (None: no time).
    """

    base: Trace
    other: Trace
    per_step: bool
    step_time: pd.DataFrame
    overview: pd.DataFrame
    operators: pd.DataFrame
    matched_share: dict[str, dict[str, float | None]]


def compare(base: Trace, other: Trace) -> Comparison:
    """Compare two runs of any frameworks."""
    everything = ViewRequest()
    base_steps, other_steps = (steps.table(trace, everything)["dur_ns"].to_numpy(np.int64) for trace in (base, other))
    per_step = bool(len(base_steps) and len(other_steps))
    counts = (len(base_steps), len(other_steps)) if per_step else (1, 1)
    operators = _operators(base, other, counts)
    return Comparison(
        base,
        other,
        per_step,
        _step_time(base_steps, other_steps),
        _overview(base, other, counts),
        operators,
        {side: {where: _matched(operators, f"{side}_{where}_ns") for where in ("cpu", "device")} for side in _SIDES},
    )


_SIDES = ("base", "other")
_STATISTICS: dict[str, Callable[[IntArray], int]] = {
    "median": lambda ns: int(np.median(ns)),
    "mean": lambda ns: round(float(ns.mean())),
    "minimum": lambda ns: int(ns.min()),
    "maximum": lambda ns: int(ns.max()),
}


def _step_time(base: IntArray, other: IntArray) -> pd.DataFrame:
    columns = ["statistic", "base_ns", "other_ns"]
    rows = [[name, f(base), f(other)] for name, f in _STATISTICS.items()] if len(base) and len(other) else []
    return _with_difference(pd.DataFrame(rows, columns=columns))


def _overview(base: Trace, other: Trace, counts: tuple[int, int]) -> pd.DataFrame:
    sides = []
    for side, trace, count in zip(_SIDES, (base, other), counts, strict=True):
        table = overview.table(trace, ViewRequest())
        table["time_ns"] = rounded_division(table["time_ns"].to_numpy(), np.full(len(table), count))
        table = table.rename(columns={"calls": f"{side}_calls", "time_ns": f"{side}_ns"})
        sides.append(table[["kind", "place", f"{side}_calls", f"{side}_ns"]])
    joined = _joined(sides[0], sides[1], ["kind", "place"])
    return _with_difference(joined[["kind", "place", "base_calls", "other_calls", "base_ns", "other_ns"]])


def _operators(base: Trace, other: Trace, counts: tuple[int, int]) -> pd.DataFrame:
    sides = []
    for side, trace, count in zip(_SIDES, (base, other), counts, strict=True):
        table = operator_time(trace)
        for measure in ("cpu_ns", "device_ns"):
            table[measure] = rounded_division(table[measure].to_numpy(), np.full(len(table), count))
        sides.append(table.rename(columns={name: f"{side}_{name}" for name in ("calls", "cpu_ns", "device_ns")}))
    joined = _joined(sides[0], sides[1], ["name", "named"])
    joined["found"] = _found(joined)
    for measure in ("cpu_ns", "device_ns"):
        joined[f"difference_{measure}"] = joined[f"other_{measure}"] - joined[f"base_{measure}"]
    order = (joined[["base_cpu_ns", "other_cpu_ns", "base_device_ns", "other_device_ns"]].max(axis=1)).sort_values(
        ascending=False, kind="stable"
    )
    columns = ["name", "found", "base_calls", "other_calls"]
    columns += [f"{side}_{measure}" for measure in ("cpu_ns", "device_ns") for side in (*_SIDES, "difference")]
    return joined.loc[order.index, columns].reset_index(drop=True)


def _joined(base: pd.DataFrame, other: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Outer join; a side that lacks a row has 0 calls and 0 ns there."""
    joined = base.merge(other, on=keys, how="outer", sort=False)
    numbers = [name for name in joined.columns if name not in keys]
    return (
        joined.astype(dict.fromkeys(numbers, "Int64"))
        .fillna(dict.fromkeys(numbers, 0))
        .astype(dict.fromkeys(numbers, np.int64))
    )


def _found(joined: pd.DataFrame) -> np.ndarray:
    in_base, in_other = joined["base_calls"].to_numpy() > 0, joined["other_calls"].to_numpy() > 0
    where = np.where(in_base & in_other, MATCHED, np.where(in_base, BASE_ONLY, OTHER_ONLY))
    return np.where(joined["named"].to_numpy(bool) | (in_base & in_other), where, UNNAMED)


def _matched(operators: pd.DataFrame, column: str) -> float | None:
    total = int(operators[column].sum())
    return int(operators.loc[operators["found"] == MATCHED, column].sum()) / total if total else None


def _with_difference(table: pd.DataFrame) -> pd.DataFrame:
    difference = table["other_ns"] - table["base_ns"]
    base = table["base_ns"].to_numpy(np.float64)
    change = difference.to_numpy(np.float64) / np.where(base > 0, base, 1)
    ratio = pd.Series(pd.arrays.FloatingArray(change, base <= 0), index=table.index)
    return table.assign(difference_ns=difference, change_ratio=ratio)
