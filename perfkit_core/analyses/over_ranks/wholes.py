"""What the shares of the views are of, for one rank; ranks add up. Ratios of nothing are 0, as in the views."""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core.analyses.fluid import overhead
from perfkit_core.analyses.merging import whole_of
from perfkit_core.analyses.native_rules import native_steps
from perfkit_core.analyses.operator import own_time
from perfkit_core.analyses.select import in_steps
from perfkit_core.analyses.span import span_ns, union_ns
from perfkit_core.analyses.step import step_share
from perfkit_core.analyses.step.step_rows import chosen_steps
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.schema import STEP
from perfkit_core.trace import Trace


def of_self_times(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int | None:
    """The self time of all rows; natively of all host events."""
    return own_time.whole_native_ns(trace) if request.native else None


def of_operators(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int:
    """The time of the outermost operators; natively the self time of all host events."""
    if request.native:
        return own_time.whole_native_ns(trace)
    return whole_of(table["total_cpu_ns"], table["total_cpu_ratio"])


def host_time_of_steps(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int:
    """The union of the steps, as the views of labels and copies take it."""
    return _inverse(step_share.ratios(trace, request, 1, 1)[0])


def device_work_of_steps(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int:
    """The device work of the steps, as the views of labels and copies take it."""
    return _inverse(step_share.ratios(trace, request, 1, 1)[1])


def span(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int:
    """The union of the steps, as the overview takes it."""
    here = in_steps(trace, request)
    return union_ns(trace, native_steps(trace, here)) if request.native else span_ns(trace, here)


def steps_of_model(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int:
    """The union of the steps, as the view of phases takes it; the time of the phases where there are no steps."""
    if not (table["phase"] == STEP).any():
        return int(table["total_cpu_ns"].fillna(0).sum())
    steps = np.zeros(len(trace), np.bool_)
    if request.native:
        steps = native_steps(trace, in_steps(trace, request))
    else:
        steps[chosen_steps(trace, request)] = True
    return union_ns(trace, steps)


def device_work_of_model(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int:
    """The device work of the steps, or of the phases where there are no steps."""
    step = table["phase"] == STEP
    counted = table[step] if step.any() else table[table["device_ratio"].notna()]
    return int(counted["total_device_ns"].fillna(0).sum())


def total_time(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int:
    """The total time of the operators."""
    return overhead.total_time(trace, request)


def _inverse(share: np.ndarray) -> int:
    """The whole that 1 is a share of; 0 for no share."""
    value = float(share)
    return round(1 / value) if value > 0 else 0
