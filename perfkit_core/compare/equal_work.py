"""Equal work in recordings without steps, which are fixed windows of time.

They are compared per call of a kernel that both repeat: the time from one call to the next, and all else that happens
from the first call to the last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms.arrays import BoolArray, IntArray
from perfkit_core.compare.windows import Windows, middle_steps, whole_run
from perfkit_core.trace.model.schema import KERNEL
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.steps.step_rows import step_rows

_FEWEST: Final = 8
"""Fewest calls of a kernel by which recordings without steps are compared."""
_COMMON: Final = 0.5
"""Least share of the time of either recording in kernels that both have."""
_NEAR: Final = 0.02
"""Largest relative difference from the usual ratio of calls."""
_UNEVEN: Final = 0.5
"""Largest relative standard deviation of the time between calls with which they stand for equal work."""
_PERIODS: Final = 5
"""Fewest calls that repeat, as a multiple of the number of calls by which they differ from evenly spread calls."""

Traces = tuple[Trace, Trace]
Masks = tuple[BoolArray, BoolArray]
Samples = tuple[list[IntArray], list[IntArray]]


@dataclass(frozen=True, slots=True)
class Repeated:
    """The kernel (or operator, without device work) whose calls stand for equal work in two recordings."""

    name: str
    per_s: tuple[float, float]  # Calls per second of a rank, in base and other.
    samples: Samples  # The times from one call to the next, one array per rank.
    windows: tuple[Windows, Windows]  # For each rank, from its first to its last call.
    uneven: float  # Relative standard deviation of the mean time between calls, because the calls are spread unevenly.
    calls: pd.DataFrame  # Columns name, base, other: calls per call of ``name``, only where they differ.
    untold: tuple[int, int]  # The number of names whose calls are too uneven to be compared, and of all names.


def repeated(base: Trace, other: Trace) -> Repeated | None:
    """Return what both recordings repeat evenly, None if they have little in common, or if both have steps. The ratio
    of its calls is the usual one: the median over all names that both have, weighted by their time. So a kernel that
    one run calls less often in the same work is not chosen."""
    traces = base, other
    if all(len(step_rows(trace)) for trace in traces):
        return None
    on_device = all(trace.rows("kind", KERNEL).any() for trace in traces)
    masks = tuple(trace.rows("kind", KERNEL) if on_device else trace.operators for trace in traces)
    tables = [_by_name(trace, mask) for trace, mask in zip(traces, masks, strict=True)]
    common = tables[0].join(tables[1].add_suffix("_other"), how="inner")
    times = common["ns"], common["ns_other"]
    shares = [ns.sum() / max(table["ns"].sum(), 1) for ns, table in zip(times, tables, strict=True)]
    common = common[(common["calls"] >= _FEWEST) & (common["calls_other"] >= _FEWEST)]
    if common.empty or min(shares) < _COMMON:
        return None
    common = common.assign(ratio=common["calls_other"] / common["calls"]).sort_values("ratio", kind="stable")
    weight = (common["ns"] / common["ns"].sum() + common["ns_other"] / common["ns_other"].sum()).cumsum()
    usual = float(common["ratio"][weight >= weight.iloc[-1] / 2].iloc[0])
    near = common[(common["ratio"] / usual - 1).abs() <= _NEAR]
    name = str((near["ns"] + near["ns_other"]).idxmax())
    sides = [_between_calls(trace, mask, name) for trace, mask in zip(traces, masks, strict=True)]
    windows, samples = (sides[0][0], sides[1][0]), (sides[0][1], sides[1][1])
    if not all(window.calls for window in windows):
        return None
    per_s = [window.calls * 1e9 / max(int(window.dur_ns.sum()), 1) for window in windows]
    spread = [math.hypot(*(_uneven(np.cumsum(np.append(0, times))) for times in side)) for side in samples]
    uneven = math.hypot(*(calls / window.calls for calls, window in zip(spread, windows, strict=True)))
    if uneven > _UNEVEN:
        return None
    counts, *untold = _other_counts(traces, (masks[0], masks[1]), windows, samples)
    if uneven * _PERIODS > 1:  # The windows may hold other parts of the work.
        counts, untold = counts[:0], [untold[1]] * 2
    return Repeated(name, (per_s[0], per_s[1]), samples, windows, uneven, counts, (untold[0], untold[1]))


def compared_windows(base: Trace, other: Trace, unit: Repeated | None) -> tuple[Windows, Windows]:
    """Return the middle steps of two runs. If a run has no steps, return what lies between calls of ``unit``, which
    both repeat, or else the whole recordings."""
    if all(len(step_rows(trace)) for trace in (base, other)):
        return middle_steps(base), middle_steps(other)
    return (whole_run(base), whole_run(other)) if unit is None else unit.windows


def _by_name(trace: Trace, mask: BoolArray) -> pd.DataFrame:
    """Return the time and the calls of the events in ``mask`` by their names. Columns: ns, calls."""
    rows, names = np.flatnonzero(mask), trace.codes("name")
    times = pd.DataFrame({"name": names.codes[rows], "ns": trace.ints("dur_ns")[rows], "calls": 1})
    table = times.groupby("name").sum()
    table.index = pd.Index([names.values[code] for code in table.index], dtype=object)
    return table


def _between_calls(trace: Trace, mask: BoolArray, name: str) -> tuple[Windows, list[IntArray]]:
    """Return windows from the first to the last call of ``name`` on each rank, and the times between its calls."""
    rows = np.flatnonzero(mask & trace.rows("name", name))
    rank, start = trace.ints("rank")[rows], trace.ints("start_ns")[rows]
    of_ranks = {number: np.sort(start[rank == number]) for number in np.unique(rank).tolist()}
    calls = {number: times for number, times in of_ranks.items() if len(times) > 1}
    first, last = (np.array([times[at] for times in calls.values()], np.int64) for at in (0, -1))
    samples = [np.diff(times) for times in calls.values()]
    count, total = sum(map(len, samples)), int((last - first).sum())
    return Windows(np.array([*calls], np.int64), first, last, round(total / max(count, 1)), calls=count), samples


def _other_counts(
    traces: Traces, masks: Masks, windows: tuple[Windows, Windows], samples: Samples
) -> tuple[pd.DataFrame, int, int]:
    """Return the names whose calls per unit of work differ by more than calls at the ends of the recordings explain.
    Names whose calls do not repeat are left out. Return also how many these are, and the number of all names."""
    calls = [_calls(*side) for side in zip(traces, masks, windows, samples, strict=True)]
    units = [window.calls for window in windows]
    rows, untold, names = [], 0, dict.fromkeys([*calls[0], *calls[1]])
    for name in names:
        (base, base_uneven), (other, other_uneven) = (side.get(name, (0, 0.0)) for side in calls)
        difference = abs(base / units[0] - other / units[1]) * min(units)
        repeats = base >= _PERIODS * base_uneven and other >= _PERIODS * other_uneven
        untold += not repeats
        if repeats and difference > 1 + math.hypot(base_uneven, other_uneven):
            rows.append((name, base / units[0], other / units[1]))
    return pd.DataFrame(rows, columns=["name", "base", "other"]), untold, len(names)


def _calls(trace: Trace, mask: BoolArray, windows: Windows, samples: list[IntArray]) -> dict[str, tuple[int, float]]:
    """Return the number of calls of each name, and how unevenly they are spread over the units of work, in calls."""
    rows, names = np.flatnonzero(mask), trace.codes("name")
    rank, start = trace.ints("rank")[rows], trace.ints("start_ns")[rows]
    calls: dict[str, tuple[int, float]] = {}
    for number, first, times in zip(windows.rank.tolist(), windows.start_ns.tolist(), samples, strict=True):
        units = len(times)
        at = np.searchsorted(np.cumsum(np.append(first, times)), start, side="right") - 1
        here = (rank == number) & (at >= 0) & (at < units)
        code, at = names.codes[rows[here]], at[here]
        for value in np.unique(code).tolist():
            passed = np.bincount(at[code == value], minlength=units).cumsum()
            count, uneven = calls.get(names.values[value], (0, 0.0))
            of_rank = int(passed[-1]) * _uneven(np.append(0, passed)) / units
            calls[names.values[value]] = count + int(passed[-1]), math.hypot(uneven, of_rank)
    return calls


def _uneven(ascending: IntArray) -> float:
    """Return the range of the difference between an ascending sequence and a straight line, in steps of the line."""
    line = ascending[-1] * np.arange(len(ascending)) / max(len(ascending) - 1, 1)
    return float(np.ptp(ascending - line)) * (len(ascending) - 1) / max(int(ascending[-1]), 1)
