"""Where does a step go: data loading, forward, backward, optimizer, or none of them?

Host time of a phase is the sum of its segments (see ``segments``); ``other`` is the step time that no segment covers, a
union, so it is never negative. Device time is the sum of the kernels launched in the phase. Where steps were recorded,
only what belongs to a step counts.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core import intervals
from perfkit_core.analyses.segments import Segments, segments
from perfkit_core.analyses.select import in_steps
from perfkit_core.analyses.span import rank_codes, union_ns
from perfkit_core.analyses.step_rows import step_rows
from perfkit_core.analyses.tables import ratio, rounded_division
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.schema import KERNEL, OTHER, PHASES, STEP
from perfkit_core.trace import BoolArray, IntArray, Trace

_EMPTY = np.empty(0, np.int64)


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Columns phase, calls, total/avg/min/max_cpu_ns, cpu_ratio (to the steps), total/avg/min/max_device_ns,
    device_ratio (to the kernels of the steps). Rows: step, then the phases that occur, then other."""
    chosen = in_steps(trace, request)
    steps = step_rows(trace)
    steps = steps[chosen[steps]]
    found = segments(trace, chosen & (trace.ints("step") >= 0) if len(steps) else chosen)
    if not len(steps) and not len(found.phase):
        return pd.DataFrame(columns=["phase", "calls", *_STATISTICS])
    device = _device_by_step(trace, steps)
    rows = [_row(STEP, trace.ints("dur_ns")[steps], device)] if len(steps) else []
    for index, name in enumerate(PHASES):
        mine = found.phase == index
        if mine.any():
            rows.append(_row(name, (found.end_ns - found.start_ns)[mine], found.device_ns[mine]))
    if len(steps):
        rows.append(_others(trace, steps, found, int(device.sum())))
    result = pd.DataFrame(rows).astype(dict.fromkeys(_INTEGERS, "Int64"))
    whole = union_ns(trace, _mask(trace, steps)) if len(steps) else int(result["total_cpu_ns"].sum())
    result["cpu_ratio"] = ratio(result["total_cpu_ns"].to_numpy(np.int64), whole)
    kernels = int(device.sum()) if len(steps) else int(result["total_device_ns"].sum())
    result["device_ratio"] = ratio(result["total_device_ns"].to_numpy(np.int64), kernels)
    return result[["phase", "calls", *_STATISTICS]]


_CPU = ("total_cpu_ns", "avg_cpu_ns", "min_cpu_ns", "max_cpu_ns")
_DEVICE = ("total_device_ns", "avg_device_ns", "min_device_ns", "max_device_ns")
_INTEGERS = ("calls", *_CPU, *_DEVICE)
_STATISTICS = (*_CPU, "cpu_ratio", *_DEVICE, "device_ratio")


def _row(phase: str, cpu: IntArray, device: IntArray) -> dict[str, object]:
    return {"phase": phase, "calls": len(cpu), **_four(_CPU, cpu), **_four(_DEVICE, device)}


def _four(names: tuple[str, ...], values: IntArray) -> dict[str, int]:
    average = rounded_division(values.sum(keepdims=True), np.array([len(values)]))[0]
    return dict(zip(names, map(int, (values.sum(), average, values.min(), values.max())), strict=True))


def _device_by_step(trace: Trace, steps: IntArray) -> IntArray:
    """Sum of the kernels of each of the step rows, in their order."""
    kernels = trace.rows("kind", KERNEL) & (trace.ints("step") >= 0)
    rank, _ = rank_codes(trace)
    width = int(trace.ints("step").max(initial=0)) + 1
    key = rank * width + trace.ints("step")
    total = np.zeros(int(key.max(initial=0)) + 2, np.int64)
    np.add.at(total, key[kernels], trace.ints("dur_ns")[kernels])
    return total[key[steps]]


def _others(trace: Trace, steps: IntArray, found: Segments, kernels: int) -> dict[str, object]:
    """Step time that no segment covers, and kernels of the steps that no phase launched."""
    missing: dict[str, object] = dict.fromkeys(_INTEGERS, pd.NA)
    covered = found.device_ns.sum()
    return missing | {
        "phase": OTHER,
        "total_cpu_ns": sum(_uncovered(trace, steps, found, rank) for rank in np.unique(trace.ints("rank")[steps])),
        "total_device_ns": max(kernels - int(covered), 0),
    }


def _uncovered(trace: Trace, steps: IntArray, found: Segments, rank: int) -> int:
    mine = steps[trace.ints("rank")[steps] == rank]
    inside = found.rank == rank
    whole = intervals.union(trace.ints("start_ns")[mine], trace.end_ns[mine])
    phases = intervals.union(found.start_ns[inside], found.end_ns[inside])
    return intervals.length(intervals.subtract(whole, phases))


def _mask(trace: Trace, rows: IntArray) -> BoolArray:
    mask = np.zeros(len(trace), np.bool_)
    mask[rows] = True
    return mask


VIEW = View(
    name="model",
    title="Phases of the step",
    description="host and device time of data loading, forward, backward and optimizer",
    table=table,
    explain_empty=lambda trace: "neither steps nor phases were recorded",
)
