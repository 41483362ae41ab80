"""Which part of the steps is it: of their time on the host, and of the device work that belongs to them?"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from perfkit_core.analyses.select import in_steps
from perfkit_core.analyses.span import span_ns
from perfkit_core.analyses.step_rows import step_rows
from perfkit_core.analyses.tables import ratio
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.schema import DEVICE_WORK, NO_ROW
from perfkit_core.trace import Trace

Floats = npt.NDArray[np.float64]


def ratios(
    trace: Trace, request: ViewRequest, cpu_ns: npt.ArrayLike, device_ns: npt.ArrayLike
) -> tuple[Floats, Floats]:
    """Shares of host and device times of the chosen steps (without steps: of the whole recording); NaN on the device
    where no device work was recorded."""
    work = trace.rows("kind", *DEVICE_WORK)
    device = ratio(device_ns, _device_ns(trace, request))
    whole = span_ns(trace, in_steps(trace, request))
    return ratio(cpu_ns, whole), device if work.any() else np.full(np.shape(device), np.nan)


def _device_ns(trace: Trace, request: ViewRequest) -> int:
    work = trace.rows("kind", *DEVICE_WORK) & in_steps(trace, request)
    if len(step_rows(trace)):
        work &= trace.ints("step", NO_ROW) >= 0
    return int(trace.ints("dur_ns")[work].sum())
