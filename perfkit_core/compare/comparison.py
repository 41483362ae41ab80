"""Step time, phases, kinds of events, operators and devices of two runs, side by side.

Operator time is counted by the operators of :mod:`~perfkit_core.compare.align.units`, including calls inside of them.
Other outermost operators keep their native name: the rows sum to the operator time.

Peaks of devices are from the makers' data sheets, only where certain: dense rates, without structured sparsity. Names
of several products have no row: "AMD Radeon Graphics" is any of them, and boards made for one customer have only the
numbers that hold for every variant of the chip.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.compare.align import align, units
from perfkit_core.compare.attribute.attribute import attribute
from perfkit_core.compare.attribute.causes import causes
from perfkit_core.model.meta import Device
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.views.select import in_steps
from perfkit_core.views.steps import overview, step_phases, step_rows
from perfkit_core.views.tables import rounded_division

MATCHED, BASE_ONLY, OTHER_ONLY, UNNAMED = "both", "base only", "other only", "no canonical name"
_SIDES: Final = ("base", "other")
_MEASURES: Final = ("cpu_ns", "device_ns")
_STATISTICS: Final[Mapping[str, Callable[[IntArray], int]]] = {
    "median": lambda ns: int(np.median(ns)),
    "mean": lambda ns: round(float(ns.mean())),
    "minimum": lambda ns: int(ns.min()),
    "maximum": lambda ns: int(ns.max()),
}


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """``other`` against ``base``; a difference is other less base.

    ``step_time``: statistic, base_ns, other_ns, difference_ns, change_ratio. ``phases``: phase, base_calls,
    other_calls, base_ns, other_ns, difference_ns, change_ratio (host time). ``overview``: kind, place, base_calls,
    other_calls, base_ns, other_ns, difference_ns, change_ratio. ``operators``: name, found ("both", "base only", …),
    base_calls, other_calls, then for cpu and device: base_…_ns, other_…_ns, difference_…_ns. If ``per_step``, times and
    calls are per step, and only events of steps count; else of the run. ``matched_share``: side → {"cpu", "device"} →
    share of operator time under names that both have (None: no time).
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
        """The attribution, see :func:`~perfkit_core.compare.attribute.attribute`; computed on each access."""
        return attribute(self.base, self.other)

    @property
    def causes(self) -> pd.DataFrame:
        """The causes of the difference, see :func:`~perfkit_core.compare.attribute.causes.causes`."""
        return causes(self.attribution)

    @property
    def alignment(self) -> align.Alignment:
        """The counterparts, level by level, see :func:`~perfkit_core.compare.align.align`."""
        return align.align(self.base, self.other)

    def __repr__(self) -> str:
        return f"Comparison({self.base!r}, {self.other!r}, {len(self.operators)} operators)"


def compare(base: Trace, other: Trace) -> Comparison:
    base_steps, other_steps = (trace.ints("dur_ns")[step_rows.step_rows(trace)] for trace in (base, other))
    per_step = bool(len(base_steps) and len(other_steps))
    statistics = [[name, f(base_steps), f(other_steps)] for name, f in _STATISTICS.items()] if per_step else []
    sides = []
    for name, trace in zip(_SIDES, (base, other), strict=True):
        rows = step_rows.step_rows(trace)
        numbers = tuple(np.unique(trace.ints("step")[rows]).tolist())
        sides.append(_Side(name, trace, ViewRequest(steps=numbers if per_step else None), len(rows) if per_step else 1))
    operators = _operators(sides)
    in_both = operators["found"] == MATCHED
    matched_share: dict[str, dict[str, float | None]] = {side: {} for side in _SIDES}
    for side, shares in matched_share.items():
        for place in ("cpu", "device"):
            times = operators[f"{side}_{place}_ns"]
            total = int(times.sum())
            shares[place] = int(times[in_both].sum()) / total if total else None
    return Comparison(
        base,
        other,
        per_step,
        with_difference(pd.DataFrame(statistics, columns=["statistic", "base_ns", "other_ns"])),
        _of_view(sides, step_phases.table, ["phase"], "total_cpu_ns"),
        _of_view(sides, overview.table, ["kind", "place"], "time_ns"),
        operators,
        matched_share,
    )


@dataclass(frozen=True, slots=True)
class _Side:
    """One run: the request to its views, and the divisor of its times and calls."""

    name: str
    trace: Trace
    request: ViewRequest
    steps: int

    def per_step(self, total: pd.Series[int]) -> IntArray:
        return rounded_division(total.fillna(0).to_numpy(np.int64), self.steps)


def _of_view(
    sides: Sequence[_Side], view: Callable[[Trace, ViewRequest], pd.DataFrame], keys: list[str], time: str
) -> pd.DataFrame:
    tables = []
    for side in sides:
        table = view(side.trace, side.request)
        table["per_step"], table["calls"] = side.per_step(table[time]), table["calls"] / side.steps
        renamed = {"calls": f"{side.name}_calls", "per_step": f"{side.name}_ns"}
        tables.append(table[[*keys, "calls", "per_step"]].rename(columns=renamed))
    joined = _joined(tables[0], tables[1], keys)
    return with_difference(joined[[*keys, "base_calls", "other_calls", "base_ns", "other_ns"]])


def _operators(sides: Sequence[_Side]) -> pd.DataFrame:
    tables = []
    for side in sides:
        table = operator_time(side.trace, in_steps(side.trace, side.request))
        table["calls"] /= side.steps
        for measure in _MEASURES:
            table[measure] = side.per_step(table[measure])
        tables.append(table.rename(columns={name: f"{side.name}_{name}" for name in ("calls", *_MEASURES)}))
    joined = _joined(tables[0], tables[1], ["name", "named"])
    in_base, in_other = joined["base_calls"].to_numpy() > 0, joined["other_calls"].to_numpy() > 0
    where = np.where(in_base & in_other, MATCHED, np.where(in_base, BASE_ONLY, OTHER_ONLY))
    joined["found"] = np.where(joined["named"].to_numpy(bool) | (in_base & in_other), where, UNNAMED)
    columns = ["name", "found", "base_calls", "other_calls"]
    for measure in _MEASURES:
        joined[f"difference_{measure}"] = joined[f"other_{measure}"] - joined[f"base_{measure}"]
        columns += [f"{side}_{measure}" for side in (*_SIDES, "difference")]
    largest = joined[[f"{side}_{measure}" for side in _SIDES for measure in _MEASURES]].max(axis=1)
    order = largest.sort_values(ascending=False, kind="stable").index
    return joined.loc[order, columns].reset_index(drop=True)


def _joined(base: pd.DataFrame, other: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    every = pd.concat([base[keys], other[keys]]).drop_duplicates()
    joined = every.merge(base, on=keys, how="left").merge(other, on=keys, how="left")
    numbers = {name: kind for side in (base, other) for name, kind in side.dtypes.items() if name not in keys}
    return joined.fillna(dict.fromkeys(numbers, 0)).astype(numbers)


def operator_time(trace: Trace, chosen: BoolArray) -> pd.DataFrame:
    """Return the columns name (canonical, else native), named (bool), calls, cpu_ns, device_ns: sums over the
    ``chosen`` events."""
    operators = units.units(trace)
    rows = np.flatnonzero(operators.own & chosen)
    names = np.array([*operators.name.values, ""], object)[operators.name.codes[rows]]
    named = (trace.codes("op_name").codes[rows] >= 0) | (names == units.OPTIMIZER_UPDATE)
    cpu, device = units.unit_times(trace)
    table = pd.DataFrame({"name": names, "named": named, "calls": 1, "cpu_ns": cpu[rows], "device_ns": device[rows]})
    sums: pd.DataFrame = table.groupby(["name", "named"], sort=False)[["calls", *_MEASURES]].sum()
    return sums.reset_index()


def with_difference(table: pd.DataFrame) -> pd.DataFrame:
    """Add difference_ns (other less base) and change_ratio (of the base; missing if that is 0)."""
    difference = table["other_ns"] - table["base_ns"]
    base = table["base_ns"].to_numpy(np.float64)
    change = difference.to_numpy(np.float64) / np.where(base > 0, base, 1)
    ratio = pd.Series(pd.arrays.FloatingArray(change, base <= 0), index=table.index)
    return table.assign(difference_ns=difference, change_ratio=ratio)


def known_device_times(table: pd.DataFrame, on_device: Mapping[str, bool]) -> pd.DataFrame:
    """Replace the device times of a side without device work, and their differences, by missing values."""
    missing = [side for side, known in on_device.items() if not known]
    gone = [f"{side}_device_ns" for side in (*missing, *(["difference"] if missing else []))]
    absent = {name: pd.array([pd.NA] * len(table), "Int64") for name in gone if name in table.columns}
    return table.assign(**absent)


TERA: Final = 10**12
GIGA: Final = 10**9


@dataclass(frozen=True, slots=True)
class Peak:
    """Operations and bytes per second; None if not certain. ``matrix16``: FP16 and BF16 on matrix units, ``float32``:
    FP32 without them."""

    product: str
    float32_flops_per_s: int | None
    matrix16_flops_per_s: int | None
    memory_bytes_per_s: int | None
    source: str | None


_V100 = Peak("Tesla V100-SXM2", 157 * TERA // 10, 125 * TERA, 900 * GIGA, "NVIDIA V100 data sheet, 2020")
_A100 = Peak("A100", 195 * TERA // 10, 312 * TERA, None, "NVIDIA A100 data sheet, 2021")
PEAKS: Final = {
    "Tesla V100-SXM2-16GB": _V100,
    "Tesla V100-SXM2-32GB": _V100,
    "Tesla V100-DGXS-32GB": Peak("V100 of DGX Station", None, 125 * TERA, None, "NVIDIA DGX Station data sheet, 2018"),
    "NVIDIA A100-SXM4-40GB": Peak("A100 SXM4 40 GB", 195 * TERA // 10, 312 * TERA, 1555 * GIGA, _A100.source),
    "NVIDIA A100-SXM4-80GB": Peak("A100 SXM4 80 GB", 195 * TERA // 10, 312 * TERA, 2039 * GIGA, _A100.source),
    "NVIDIA A100-PG509-200": _A100,
    "NVIDIA H100 80GB HBM3": Peak("H100 SXM5", 67 * TERA, 989 * TERA, 3350 * GIGA, "NVIDIA H100 data sheet, 2023"),
    "NVIDIA B200": Peak("B200", None, 2250 * TERA, None, "NVIDIA Blackwell architecture brief, 2024"),
    "AMD Instinct MI210": Peak("MI210", 226 * TERA // 10, 181 * TERA, 1638 * GIGA, "AMD MI210 data sheet, 2022"),
    "AMD Instinct MI300X": Peak("MI300X", 1634 * TERA // 10, 13074 * TERA // 10, 5300 * GIGA,
                                "AMD MI300X data sheet, 2023"),
}  # fmt: skip
"""Product name in recordings → its peaks."""
_UNKNOWN: Final = Peak("", None, None, None, None)
_VIRTUAL: Final = " VF"
"""A virtual function of a whole device, as clouds offer it; recognised by having all units of the device."""


def peak(device: Device) -> Peak | None:
    """Return the peaks of a device, None if its name is ambiguous."""
    name = device.name or ""
    if name.endswith(_VIRTUAL) and device.properties.get("numSms") == 304:  # all units of the MI300X
        name = name.removesuffix(_VIRTUAL)
    return PEAKS.get(name)


def device_names(trace: Trace) -> tuple[str, ...]:
    """Return the names of the devices that the run used; if none, of all recorded ones."""
    used = set(trace.codes("device").values)
    mine = [device for device in trace.meta.devices if device.id in used] or list(trace.meta.devices)
    return tuple(dict.fromkeys(device.name or device.id for device in mine))


def different_devices(traces: Sequence[Trace]) -> bool:
    products = [set(device_names(trace)) for trace in traces if device_names(trace)]
    return any(names != products[0] for names in products[1:])


def device_table(sides: Sequence[tuple[str, Trace]]) -> pd.DataFrame:
    """Return the columns side, device, float32_tflop_per_s, matrix16_tflop_per_s (FP16 and BF16, dense),
    memory_gb_per_s (decimal, as in data sheets), device_memory_bytes (as recorded), source of the peaks. NA if not
    certain."""
    rows = []
    for side, trace in sides:
        recorded = {device.name or device.id: device for device in trace.meta.devices}
        for name in device_names(trace):
            known = peak(recorded[name]) or _UNKNOWN
            flops = (known.float32_flops_per_s, known.matrix16_flops_per_s)
            rates = ((*flops, known.memory_bytes_per_s), (TERA, TERA, GIGA))
            shown = (None if rate is None else rate / unit for rate, unit in zip(*rates, strict=True))
            rows.append([side, name, *shown, recorded[name].memory_bytes, known.source])
    columns = ["side", "device", "float32_tflop_per_s", "matrix16_tflop_per_s", "memory_gb_per_s",
               "device_memory_bytes", "source"]  # fmt: skip
    kinds = dict.fromkeys(columns[2:5], "Float64") | {"device_memory_bytes": "Int64"}
    return pd.DataFrame(rows, columns=columns).astype(kinds)
