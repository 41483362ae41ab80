"""How busy was each device?

A device is busy while at least one kernel runs on it (a union over streams); utilisation is busy time over the union of
the steps, or over the recording where there are no steps. CPU utilisation is what the framework itself measured.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core.analyses.select import in_steps
from perfkit_core.analyses.span import span_ns, union_ns
from perfkit_core.analyses.tables import ratio
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.schema import DEVICE_WORK, KERNEL
from perfkit_core.trace import BoolArray, Trace


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Columns device, product, kernels, busy_ns, span_ns, utilisation_ratio; rows for the CPU have only the ratio."""
    chosen = in_steps(trace, request)
    whole = span_ns(trace, chosen)
    rows = [_cpu(scope, value) for scope, value in trace.meta.cpu_utilisation.items()]
    rows += [_device(trace, chosen, name, whole) for name in _devices(trace)]
    columns = ["device", "product", "kernels", "busy_ns", "span_ns", "utilisation_ratio"]
    return pd.DataFrame(rows, columns=columns).astype({"kernels": "Int64", "busy_ns": "Int64", "span_ns": "Int64"})


def _devices(trace: Trace) -> list[str]:
    codes = trace.codes("device")
    used = np.unique(codes.codes[trace.rows("kind", *DEVICE_WORK) & (codes.codes >= 0)])
    return sorted(codes.values[code] for code in used)


def _device(trace: Trace, chosen: BoolArray, name: str, whole: int) -> dict[str, object]:
    kernels = chosen & trace.rows("device", name) & trace.rows("kind", KERNEL)
    busy = union_ns(trace, kernels)
    product = next((device.name for device in trace.meta.devices if device.id == name), None)
    return {
        "device": name,
        "product": product if product is not None else pd.NA,
        "kernels": int(kernels.sum()),
        "busy_ns": busy,
        "span_ns": whole,
        "utilisation_ratio": float(ratio(busy, whole)),
    }


def _cpu(scope: str, value: float) -> dict[str, object]:
    missing = dict.fromkeys(("product", "kernels", "busy_ns", "span_ns"), pd.NA)
    return {"device": f"cpu ({scope})", **missing, "utilisation_ratio": value}


VIEW = View(
    name="device",
    title="Device utilisation",
    description="busy time and utilisation of each device",
    table=table,
    explain_empty=lambda trace: "no device work and no CPU utilisation were recorded",
)
