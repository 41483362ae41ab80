"""Step time, phases, kinds of events, operators and devices of two runs, side by side.

Nested operators count for the outermost operator (:mod:`~perfkit_core.compare.align.operator_owner`). Operators without
a canonical name keep their native name, so the rows sum to the operator time.

Peak rates of devices are the dense rates (without structured sparsity) from the vendors' data sheets. They are given
only if the device name identifies a product. "AMD Radeon Graphics", for example, is the name of many products. Some
boards were made for one customer. For these, a rate is given only if all variants of the chip have this rate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.base.language.messages import SIDES
from perfkit_core.base.language.units import format_duration, format_ratio
from perfkit_core.base.system.paths import PathLike
from perfkit_core.compare.align.align import DEVICE_EVENT, KIND, MEASURES, NAMED, Alignment, Items, align
from perfkit_core.compare.attribute.attribute import attribute
from perfkit_core.compare.attribute.causes import causes
from perfkit_core.compare.captures import captures_of, of_one_kind
from perfkit_core.compare.statistics import pooled
from perfkit_core.compare.windows import on_one_clock, step_windows
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.plugins.flops.peaks import DevicePeaks, peaks_of
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.merging import table_of
from perfkit_core.views.steps import overview, step_phases
from perfkit_core.views.tables import rounded_division

MATCHED, BASE_ONLY, OTHER_ONLY, UNNAMED = "both", "base only", "other only", "no canonical name"
_STATISTICS: Final[Mapping[str, Callable[[IntArray], int]]] = {
    "median": lambda ns: int(np.median(ns)),
    "mean": lambda ns: round(float(ns.mean())),
    "minimum": lambda ns: int(ns.min()),
    "maximum": lambda ns: int(ns.max()),
}


Captures = tuple[tuple[Trace, ...], tuple[Trace, ...]]
"""The captures of base and of other."""


@dataclass(frozen=True, repr=False)
class Comparison:
    """Two runs side by side. A difference is other minus base. If ``per_step`` is true, times and calls are means per
    step; otherwise they are sums over the whole recording. Each table is computed on its first use.

    - ``alignment``: the corresponding parts of the runs, of which all tables are made.
    - ``captures``: the captures of base and of other; ``base`` and ``other`` contain all of them.
    - ``step_time``: one row per statistic. Columns: statistic, base_ns, other_ns, difference_ns, change_ratio.
    - ``phases``: host time. Columns: phase, base_calls, other_calls, base_ns, other_ns, difference_ns, change_ratio.
    - ``overview``: the columns of ``phases``, but kind and place instead of phase.
    - ``operators``: name; found ("both", "base only", …); base_calls, other_calls; cpu_ns and device_ns with the
      prefixes ``base_``, ``other_`` and ``difference_``.
    - ``attribution``: the tree of the difference (:func:`~perfkit_core.compare.attribute.attribute.attribute`).
    - ``causes``: its rows summed by cause (:func:`~perfkit_core.compare.attribute.causes.causes`).
    """

    alignment: Alignment
    captures: Captures

    @property
    def base(self) -> Trace:
        return self.alignment.traces[0]

    @property
    def other(self) -> Trace:
        return self.alignment.traces[1]

    @property
    def per_step(self) -> bool:
        return self.alignment.per_step

    @property
    def matched_share(self) -> dict[str, dict[str, float | None]]:
        """Share of the time with a counterpart: side → "cpu", "device" or "step" → share, None without time."""
        return self.alignment.matched

    @cached_property
    def step_time(self) -> pd.DataFrame:
        steps = [step_windows(trace).dur_ns for trace in self.alignment.traces] if self.per_step else []
        statistics = [[name, *map(f, steps)] for name, f in _STATISTICS.items()] if steps else []
        return with_difference(pd.DataFrame(statistics, columns=["statistic", "base_ns", "other_ns"]))

    @cached_property
    def phases(self) -> pd.DataFrame:
        return _of_view(self.alignment, step_phases.VIEW, ["phase"], "total_cpu_ns")

    @cached_property
    def overview(self) -> pd.DataFrame:
        return _of_view(self.alignment, overview.VIEW, ["kind", "place"], "time_ns")

    @cached_property
    def operators(self) -> pd.DataFrame:
        return _operators(self.alignment)

    @cached_property
    def attribution(self) -> pd.DataFrame:
        return attribute(self.alignment)

    @cached_property
    def causes(self) -> pd.DataFrame:
        return causes(self.attribution)

    def __repr__(self) -> str:
        time = "of whole recordings"
        if self.per_step:
            ends = [format_duration(self.step_time[name].iloc[0]) for name in ("base_ns", "other_ns")]
            ratio = self.step_time["change_ratio"].iloc[0]
            time = " → ".join(ends) + " a step" + ("" if pd.isna(ratio) else f" ({format_ratio(ratio, signed=True)})")
        return f"<Comparison {time}, {self.base!r}, {self.other!r}>"


def compare(
    base: Trace | PathLike | Sequence[Trace | PathLike | Sequence[PathLike]],
    other: Trace | PathLike | Sequence[Trace | PathLike | Sequence[PathLike]],
) -> Comparison:
    """Return a :class:`Comparison` of two runs.

    A run is a Trace, a source that :func:`perfkit_core.load` reads, or several captures: a list of these, or a pattern
    such as ``"runs/main-*"``. Captures are recordings of the same training by separate processes. Their steps are
    pooled, and their differences show how much equal runs differ. The ranks of one recording are one capture: a list in
    the list, or what ``load`` returns. Only steps of one kind of an inference server are compared. Raises SourceError,
    and UsageError if the runs have no step kind in common.
    """
    captures = on_one_clock(of_one_kind([captures_of(base), captures_of(other)]))
    return Comparison(align(pooled(captures[0]), pooled(captures[1])), (tuple(captures[0]), tuple(captures[1])))


def _of_view(alignment: Alignment, view: View, keys: list[str], time: str) -> pd.DataFrame:
    parts = []
    for side, trace, windows in zip(SIDES, alignment.traces, alignment.windows, strict=True):
        numbers = tuple(np.unique(trace.ints("step")[windows.row]).tolist())
        table = table_of(view, trace, ViewRequest(steps=numbers if alignment.per_step else None))
        count = len(windows) if alignment.per_step else 1
        part = table[keys].copy()
        part[f"{side}_calls"] = table["calls"] / count
        part[f"{side}_ns"] = rounded_division(table[time].fillna(0).to_numpy(np.int64), count)
        parts.append(part)
    joined = _joined(parts[0], parts[1], keys)
    return with_difference(joined[[*keys, "base_calls", "other_calls", "base_ns", "other_ns"]])


def operator_times(items: Items, count: int) -> pd.DataFrame:
    """Return the calls, cpu_ns and device_ns of the operators of ``items``, summed by ``name``. The column ``named`` is
    true for canonical names, and false for native names. Calls are divided by ``count``."""
    table = items.table[items.table[KIND] != DEVICE_EVENT].rename(columns={"operator": "name"})
    table = table.assign(named=table[KIND] == NAMED)
    sums: pd.DataFrame = table.groupby(["name", "named"], sort=False)[list(MEASURES)].sum().reset_index()
    return sums.assign(calls=sums["calls"] / count)


def _operators(alignment: Alignment) -> pd.DataFrame:
    sides = []
    for side, items, count in zip(SIDES, alignment.items, alignment.counts, strict=True):
        table = operator_times(items, count)
        sides.append(table.rename(columns={name: f"{side}_{name}" for name in MEASURES}))
    joined = _joined(sides[0], sides[1], ["name", "named"])
    in_base, in_other = joined["base_calls"].to_numpy() > 0, joined["other_calls"].to_numpy() > 0
    where = np.where(in_base & in_other, MATCHED, np.where(in_base, BASE_ONLY, OTHER_ONLY))
    joined["found"] = np.where(joined["named"].to_numpy(bool) | (in_base & in_other), where, UNNAMED)
    columns = ["name", "found", "base_calls", "other_calls"]
    for measure in MEASURES[1:]:
        joined[f"difference_{measure}"] = joined[f"other_{measure}"] - joined[f"base_{measure}"]
        columns += [f"{side}_{measure}" for side in (*SIDES, "difference")]
    largest = joined[[f"{side}_{measure}" for side in SIDES for measure in MEASURES[1:]]].max(axis=1)
    order = largest.sort_values(ascending=False, kind="stable").index
    return joined.loc[order, columns].reset_index(drop=True)


def _joined(base: pd.DataFrame, other: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    every = pd.concat([base[keys], other[keys]]).drop_duplicates()
    joined = every.merge(base, on=keys, how="left").merge(other, on=keys, how="left")
    numbers = {name: kind for side in (base, other) for name, kind in side.dtypes.items() if name not in keys}
    return joined.fillna(dict.fromkeys(numbers, 0)).astype(numbers)


def with_difference(table: pd.DataFrame) -> pd.DataFrame:
    """Add the columns difference_ns (other minus base) and change_ratio (difference / base; missing if base is 0)."""
    difference = table["other_ns"] - table["base_ns"]
    base = table["base_ns"].to_numpy(np.float64)
    change = difference.to_numpy(np.float64) / np.where(base > 0, base, 1)
    ratio = pd.Series(pd.arrays.FloatingArray(change, base <= 0), index=table.index)
    return table.assign(difference_ns=difference, change_ratio=ratio)


def known_device_times(table: pd.DataFrame, on_device: Mapping[str, bool]) -> pd.DataFrame:
    """If a side has no device work, replace its device times and the differences by missing values."""
    missing = [side for side, has_work in on_device.items() if not has_work]
    names = [f"{side}_device_ns" for side in (*missing, *(["difference"] if missing else []))]
    return table.assign(**{name: pd.array([pd.NA] * len(table), "Int64") for name in names if name in table.columns})


def device_names(trace: Trace) -> tuple[str, ...]:
    """Return the names of the devices that the run used. If it used none, return the names of all recorded devices."""
    used = set(trace.codes("device").values)
    devices = [device for device in trace.meta.devices if device.id in used] or trace.meta.devices
    return tuple(dict.fromkeys(device.name or device.id for device in devices))


def different_devices(traces: Sequence[Trace]) -> bool:
    products = [set(device_names(trace)) for trace in traces if device_names(trace)]
    return any(names != products[0] for names in products[1:])


def device_table(sides: Sequence[tuple[str, Trace]]) -> pd.DataFrame:
    """Return a table of the devices of each side: their peak rates, their recorded memory size, and the data sheet of
    the rates. Uncertain rates are NA. Memory rates are in decimal gigabytes per second."""
    rows = []
    for side, trace in sides:
        recorded = {device.name or device.id: device for device in trace.meta.devices}
        for name in device_names(trace):
            peaks = peaks_of(recorded[name]) or DevicePeaks((), "")
            rates = (
                peaks.vector_tflop_per_s.get("float32"),
                peaks.matrix_tflop_per_s.get("float16"),
                peaks.memory_gb_per_s,
            )
            rows.append([side, name, *rates, recorded[name].memory_bytes, peaks.source or None])
    columns = ["side", "device", "float32_tflop_per_s", "matrix16_tflop_per_s", "memory_gb_per_s",
               "device_memory_bytes", "source"]  # fmt: skip
    kinds = dict.fromkeys(columns[2:5], "Float64") | {"device_memory_bytes": "Int64"}
    return pd.DataFrame(rows, columns=columns).astype(kinds)
