"""The table of phases as Paddle's Model Summary has it: sums of calls and kernels, over the whole recording.

``other`` is the step time less the sums of the phases on either side, so it turns negative where phases overlap.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from perfkit_core import nesting
from perfkit_core.analyses import attribution
from perfkit_core.analyses.native_rules import native_steps
from perfkit_core.analyses.select import in_steps
from perfkit_core.analyses.span import union_ns
from perfkit_core.analyses.step.model_rows import model_table, row
from perfkit_core.analyses.step.segments import segments
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.schema import KERNEL, OTHER, PHASES, STEP
from perfkit_core.trace import BoolArray, IntArray, Trace


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """The columns of the view ``model``; rows: step, the phases that occur, other."""
    chosen = in_steps(trace, request)
    phases = phase_rows(trace, chosen)
    steps = native_steps(trace, chosen)
    if not steps.any():
        return model_table(phases, sum(r["total_cpu_ns"] for r in phases), sum(r["total_device_ns"] for r in phases))
    whole = row(STEP, trace.ints("dur_ns")[steps], _kernels(trace)[steps])
    time, kernels = union_ns(trace, steps), whole["total_device_ns"]
    other = row(
        OTHER,
        cpu_total=time - sum(r["total_cpu_ns"] for r in phases),
        device_total=kernels - sum(r["total_device_ns"] for r in phases),
    )
    return model_table([whole, *phases, other], time, kernels)


def phase_rows(trace: Trace, chosen: BoolArray) -> list[dict[str, Any]]:
    """Calls, and sums of host time and kernels, of each phase that occurs: its outermost recorded spans; its segments
    where the framework records no such span."""
    found = [_spans(trace, chosen, name) or _segments(trace, chosen, name) for name in PHASES if name != OTHER]
    return [one for one in found if one]


def _spans(trace: Trace, chosen: BoolArray, name: str) -> dict[str, Any] | None:
    marked = trace.host & trace.rows("kind", *PHASES) & ~trace.rows("kind", OTHER)
    outermost = nesting.outermost(trace.ints("parent"), marked)
    rows = np.flatnonzero(chosen & (outermost == np.arange(len(trace))) & trace.rows("kind", name))
    return row(name, trace.ints("dur_ns")[rows], _kernels(trace)[rows]) if len(rows) else None


def _segments(trace: Trace, chosen: BoolArray, name: str) -> dict[str, Any] | None:
    found = segments(trace, chosen, within_step=False)
    mine = found.phase == PHASES.index(name)
    kernels = np.zeros(len(mine), np.int64)
    launched = np.flatnonzero(trace.rows("kind", KERNEL) & chosen)
    of_row = found.of_rows(trace, launched)
    counted = of_row >= 0
    np.add.at(kernels, of_row[counted], trace.ints("dur_ns")[launched[counted]])
    return row(name, found.dur_ns[mine], kernels[mine]) if mine.any() else None


def _kernels(trace: Trace) -> IntArray:
    return attribution.total_device_ns(trace, KERNEL)
