"""Which kernels kept the device busy?

Sums over streams and devices, as Paddle's kernel summary and torch's device rows have them; kernels whose launch was
not recorded count too.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core.analyses.select import selected
from perfkit_core.analyses.tables import plain, ratio, statistics, texts
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.schema import KERNEL
from perfkit_core.trace import Trace


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Columns name, device, calls, total/avg/min/max_device_ns, ratio (of the time of all kernels)."""
    rows = np.flatnonzero(selected(trace, request) & trace.rows("kind", KERNEL))
    keys = {"name": texts(trace.codes("name"), rows), "device": texts(trace.codes("device"), rows)}
    result = statistics(keys, trace.ints("dur_ns")[rows], "device")
    result["ratio"] = ratio(result["total_device_ns"], int(result["total_device_ns"].sum()))
    return plain(result)


VIEW = View(
    name="kernels",
    title="Kernels",
    description="calls and time of each kernel on the device",
    table=table,
    order="total_device_ns",
    explain_empty=lambda trace: "no kernels on a device were recorded",
)
