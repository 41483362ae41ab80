"""Step time, kinds of events and operators of two runs, side by side, for each step.

Tables of two runs as one: all rows of both, and what differs.

The operator time of one run by canonical operator, without counting anything twice.

Counted are the operators of :mod:`~perfkit_core.compare.align.units`; what they call belongs to them. What
remains of the operators at the top has no canonical name and stays under its native one: the rows sum to the operator
time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.compare.align.align import Alignment, align
from perfkit_core.compare.align.items import unit_times
from perfkit_core.compare.align.units import OPTIMIZER_UPDATE, units
from perfkit_core.compare.attribute.attribute import attribute
from perfkit_core.compare.attribute.causes import causes
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.views.select import in_steps
from perfkit_core.views.steps import overview, step_phases
from perfkit_core.views.steps.step_rows import step_rows
from perfkit_core.views.tables import rounded_division

__all__ = ["OPTIMIZER_UPDATE", "operator_time"]


def operator_time(trace: Trace, chosen: BoolArray) -> pd.DataFrame:
    """Columns name (canonical, or native where unnamed), named (bool), calls, cpu_ns, device_ns: sums of ``chosen``."""
    found = units(trace)
    rows = np.flatnonzero(found.own & chosen)
    names = np.array([*found.name.values, ""], object)[found.name.codes[rows]]
    named = (trace.codes("op_name").codes[rows] >= 0) | (names == OPTIMIZER_UPDATE)
    cpu, device = unit_times(trace)
    table = pd.DataFrame({"name": names, "named": named, "calls": 1, "cpu_ns": cpu[rows], "device_ns": device[rows]})
    sums: pd.DataFrame = table.groupby(["name", "named"], sort=False)[["calls", "cpu_ns", "device_ns"]].sum()
    return sums.reset_index()


MATCHED, BASE_ONLY, OTHER_ONLY, UNNAMED = "both", "base only", "other only", "no canonical name"


def joined_tables(base: pd.DataFrame, other: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """All rows of both, those of base first. A side that lacks a row has 0 calls and 0 ns there."""
    every = pd.concat([base[keys], other[keys]]).drop_duplicates()
    joined = every.merge(base, on=keys, how="left").merge(other, on=keys, how="left")
    numbers = {name: kind for side in (base, other) for name, kind in side.dtypes.items() if name not in keys}
    return joined.fillna(dict.fromkeys(numbers, 0)).astype(numbers)


def found_in(joined: pd.DataFrame) -> np.ndarray:
    """In which of the runs each name is, shape (rows,)."""
    in_base, in_other = joined["base_calls"].to_numpy() > 0, joined["other_calls"].to_numpy() > 0
    where = np.where(in_base & in_other, MATCHED, np.where(in_base, BASE_ONLY, OTHER_ONLY))
    return np.where(joined["named"].to_numpy(bool) | (in_base & in_other), where, UNNAMED)


def with_difference(table: pd.DataFrame) -> pd.DataFrame:
    """With difference_ns (other less base) and change_ratio (by the base; missing where that is 0)."""
    difference = table["other_ns"] - table["base_ns"]
    base = table["base_ns"].to_numpy(np.float64)
    change = difference.to_numpy(np.float64) / np.where(base > 0, base, 1)
    ratio = pd.Series(pd.arrays.FloatingArray(change, base <= 0), index=table.index)
    return table.assign(difference_ns=difference, change_ratio=ratio)


def known_device_times(table: pd.DataFrame, on_device: Mapping[str, bool]) -> pd.DataFrame:
    """Where a side has no device work its times there are not 0 but missing, and so is the difference."""
    missing = [side for side, known in on_device.items() if not known]
    gone = [f"{side}_device_ns" for side in (*missing, *(["difference"] if missing else []))]
    absent = {name: pd.array([pd.NA] * len(table), "Int64") for name in gone if name in table.columns}
    return table.assign(**absent)


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """``other`` against ``base``; a difference is other less base.

    ``step_time``: statistic, base_ns, other_ns, difference_ns, change_ratio.
    ``phases``: phase, base_calls, other_calls, base_ns, other_ns, difference_ns, change_ratio (host time).
    ``overview``: kind, place, base_calls, other_calls, base_ns, other_ns, difference_ns, change_ratio.
    ``operators``: name, found ("both", "base only", …), base_calls, other_calls, then for cpu and device: base_…_ns,
    other_…_ns, difference_…_ns.
    Where ``per_step`` is true, times and calls are for one step, and only what belongs to a step counts; else for the
    run.
    ``matched_share``: side → {"cpu", "device"} → share of operator time under names that both have (None: no time).
    """

    base: Trace
    other: Trace
    per_step: bool
    step_time: pd.DataFrame
    phases: pd.DataFrame
    overview: pd.DataFrame
    operators: pd.DataFrame
    matched_share: dict[str, dict[str, float | None]]

    @property
    def attribution(self) -> pd.DataFrame:
        """The difference taken apart, see :func:`~perfkit_core.compare.attribute.attribute`; worked out anew."""
        return attribute(self.base, self.other)

    @property
    def causes(self) -> pd.DataFrame:
        """Where it comes from, see :func:`~perfkit_core.compare.attribute.causes.causes`."""
        return causes(self.attribution)

    @property
    def alignment(self) -> Alignment:
        """What corresponds to what, level by level, as :func:`~perfkit_core.compare.align.align` finds it."""
        return align(self.base, self.other)

    def __repr__(self) -> str:
        return f"Comparison({self.base!r}, {self.other!r}, {len(self.operators)} operators)"


def compare(base: Trace, other: Trace) -> Comparison:
    """Compare two runs of any frameworks."""
    base_steps, other_steps = (trace.ints("dur_ns")[step_rows(trace)] for trace in (base, other))
    per_step = bool(len(base_steps) and len(other_steps))
    sides = _sides(base, other, per_step)
    operators = _operators(sides)
    return Comparison(
        base,
        other,
        per_step,
        _step_time(base_steps, other_steps),
        _table(sides, step_phases.table, ["phase"], "total_cpu_ns"),
        _table(sides, overview.table, ["kind", "place"], "time_ns"),
        operators,
        {side: {where: _matched(operators, f"{side}_{where}_ns") for where in ("cpu", "device")} for side in _SIDES},
    )


_SIDES = ("base", "other")
_ViewTable = Callable[[Trace, ViewRequest], pd.DataFrame]
_STATISTICS: dict[str, Callable[[IntArray], int]] = {
    "median": lambda ns: int(np.median(ns)),
    "mean": lambda ns: round(float(ns.mean())),
    "minimum": lambda ns: int(ns.min()),
    "maximum": lambda ns: int(ns.max()),
}


def _step_time(base: IntArray, other: IntArray) -> pd.DataFrame:
    columns = ["statistic", "base_ns", "other_ns"]
    rows = [[name, f(base), f(other)] for name, f in _STATISTICS.items()] if len(base) and len(other) else []
    return with_difference(pd.DataFrame(rows, columns=columns))


@dataclass(frozen=True, slots=True)
class _Side:
    """One run: what is asked of its views, and by how many its times and calls are divided."""

    name: str
    trace: Trace
    request: ViewRequest
    steps: int

    def per_step(self, total: pd.Series[int]) -> IntArray:
        return rounded_division(total.fillna(0).to_numpy(np.int64), self.steps)


def _sides(base: Trace, other: Trace, per_step: bool) -> tuple[_Side, _Side]:
    return _side("base", base, per_step), _side("other", other, per_step)


def _side(name: str, trace: Trace, per_step: bool) -> _Side:
    if not per_step:
        return _Side(name, trace, ViewRequest(), 1)
    rows = step_rows(trace)
    return _Side(name, trace, ViewRequest(steps=tuple(np.unique(trace.ints("step")[rows]).tolist())), len(rows))


def _table(sides: tuple[_Side, _Side], view: _ViewTable, keys: list[str], time: str) -> pd.DataFrame:
    """Calls and time of a view, side by side."""
    tables = []
    for side in sides:
        table = view(side.trace, side.request)
        table["per_step"], table["calls"] = side.per_step(table[time]), table["calls"] / side.steps
        renamed = {"calls": f"{side.name}_calls", "per_step": f"{side.name}_ns"}
        tables.append(table[[*keys, "calls", "per_step"]].rename(columns=renamed))
    joined = joined_tables(tables[0], tables[1], keys)
    return with_difference(joined[[*keys, "base_calls", "other_calls", "base_ns", "other_ns"]])


def _operators(sides: tuple[_Side, _Side]) -> pd.DataFrame:
    tables = []
    for side in sides:
        table = operator_time(side.trace, in_steps(side.trace, side.request))
        table["calls"] /= side.steps
        for measure in _MEASURES:
            table[measure] = side.per_step(table[measure])
        tables.append(table.rename(columns={name: f"{side.name}_{name}" for name in ("calls", *_MEASURES)}))
    joined = joined_tables(tables[0], tables[1], ["name", "named"])
    joined["found"] = found_in(joined)
    for measure in _MEASURES:
        joined[f"difference_{measure}"] = joined[f"other_{measure}"] - joined[f"base_{measure}"]
    largest = joined[[f"{side}_{measure}" for side in _SIDES for measure in _MEASURES]].max(axis=1)
    columns = ["name", "found", "base_calls", "other_calls"]
    columns += [f"{side}_{measure}" for measure in _MEASURES for side in (*_SIDES, "difference")]
    order = largest.sort_values(ascending=False, kind="stable").index
    return joined.loc[order, columns].reset_index(drop=True)


_MEASURES = ("cpu_ns", "device_ns")


def _matched(operators: pd.DataFrame, column: str) -> float | None:
    total = int(operators[column].sum())
    return int(operators.loc[operators["found"] == MATCHED, column].sum()) / total if total else None
