"""Which part of the steps is it: of their time on the host, and of the device work that belongs to them?"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.algorithms.arrays import NO_ROW, BoolArray
from perfkit_core.model.schema import DEVICE_WORK
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.views import attribution
from perfkit_core.views.select import in_steps
from perfkit_core.views.span import span_ns, union_ns
from perfkit_core.views.steps.step_rows import cut_off_rows, step_rows
from perfkit_core.views.tables import ratio

Floats = npt.NDArray[np.float64]


def ratios(
    trace: Trace, request: ViewRequest, cpu_ns: npt.ArrayLike, device_ns: npt.ArrayLike
) -> tuple[Floats, Floats]:
    """Shares of host and device times of the chosen steps (without steps: of the whole recording); NaN on the device
    where no device work was recorded. Natively empty last steps count, and the device work launched on their thread."""
    if request.native:
        steps = _native_steps(trace, request)
        whole, device_whole = union_ns(trace, steps), int(attribution.total_device_ns(trace)[steps].sum())
    else:
        whole, device_whole = span_ns(trace, in_steps(trace, request)), _device_ns(trace, request)
    device = ratio(device_ns, device_whole)
    work = trace.rows("kind", *DEVICE_WORK)
    return ratio(cpu_ns, whole), device if work.any() else np.full(np.shape(device), np.nan)


def host_ns(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int:
    """What shares of host time are of, on one rank."""
    return _whole(ratios(trace, request, 1, 1)[0])


def device_ns(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int:
    """What shares of device time are of, on one rank."""
    return _whole(ratios(trace, request, 1, 1)[1])


def _whole(share: Floats) -> int:
    """The whole that 1 is a share of; 0 for no share."""
    value = float(share)
    return round(1 / value) if value > 0 else 0


def _native_steps(trace: Trace, request: ViewRequest) -> BoolArray:
    steps = cut_off_rows(trace).copy()
    steps[step_rows(trace)] = True
    return steps & in_steps(trace, request)


def _device_ns(trace: Trace, request: ViewRequest) -> int:
    work = trace.rows("kind", *DEVICE_WORK) & in_steps(trace, request)
    if len(step_rows(trace)):
        work &= trace.ints("step", NO_ROW) >= 0
    return int(trace.ints("dur_ns")[work].sum())
