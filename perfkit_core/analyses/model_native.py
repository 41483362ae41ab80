"""The table of phases as Paddle's Model Summary has it: sums of calls and kernels, over the whole recording.

``other`` is the step time less the sums of the phases on either side, so it turns negative where phases overlap.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from perfkit_core.analyses import attribution
from perfkit_core.analyses.model_rows import model_table, row
from perfkit_core.analyses.native_rules import native_step_ns, native_steps
from perfkit_core.analyses.segments import segments
from perfkit_core.analyses.select import in_steps
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.schema import KERNEL, OTHER, PHASES, STEP
from perfkit_core.trace import BoolArray, IntArray, Trace


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """The columns of the view ``model``; rows: step, the phases that occur, other."""
    chosen = in_steps(trace, request)
    phases = phase_rows(trace, chosen)
    steps = native_steps(trace, chosen)
    if not len(steps):
        return model_table(phases, sum(r["total_cpu_ns"] for r in phases), sum(r["total_device_ns"] for r in phases))
    whole = row(STEP, trace.ints("dur_ns")[steps], _kernels(trace)[steps])
    time, kernels = native_step_ns(trace, chosen), whole["total_device_ns"]
    other = row(
        OTHER,
        cpu_total=time - sum(r["total_cpu_ns"] for r in phases),
        device_total=kernels - sum(r["total_device_ns"] for r in phases),
    )
    return model_table([whole, *phases, other], time, kernels)


def phase_rows(trace: Trace, chosen: BoolArray) -> list[dict[str, Any]]:
    """Calls, and sums of host time and kernels, of each phase that occurs."""
    found = segments(trace, chosen, within_step=False)
    kernels = np.zeros(len(found.phase), np.int64)
    counted = trace.rows("kind", KERNEL) & (found.of_row >= 0) & chosen
    np.add.at(kernels, found.of_row[counted], trace.ints("dur_ns")[counted])
    masks = ((name, found.phase == index) for index, name in enumerate(PHASES))
    return [row(name, found.dur_ns[mine], kernels[mine]) for name, mine in masks if mine.any()]


def _kernels(trace: Trace) -> IntArray:
    return attribution.total_device_ns(trace, KERNEL)
