"""How busy was each device?

A device is busy while at least one kernel runs on it (a union over streams). Utilisation is busy time over the union
of the steps of the ranks that use the device (without steps: the extent of their events), as Paddle has it: kernels
that run outside the steps count, so it can exceed 1. ``busy_in_steps_ratio`` is the share of the step time in which the
device is busy, never above 1. CPU utilisation is what the framework itself measured. With ``native`` only kernels that
a host event launched count, and the step time is Paddle's (see ``native_rules``).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core import intervals
from perfkit_core.analyses.native_rules import counted, native_steps
from perfkit_core.analyses.select import in_steps
from perfkit_core.analyses.span import rank_codes, spans
from perfkit_core.analyses.tables import ratio
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.schema import DEVICE_WORK, KERNEL
from perfkit_core.trace import BoolArray, IntArray, Trace


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Columns device, product, kernels, busy_ns, span_ns, utilisation_ratio, busy_in_steps_ratio; rows for the CPU have
    only utilisation_ratio."""
    chosen = in_steps(trace, request)
    counts = chosen & counted(trace) if request.native else chosen
    steps = native_steps(trace, chosen) if request.native else None
    rows = [_cpu(scope, value) for scope, value in trace.meta.cpu_utilisation.items()]
    rows += [_device(trace, name, counts, chosen, steps) for name in _devices(trace)]
    return pd.DataFrame(rows, columns=["device", "product", *_TYPES]).astype(_TYPES)


_TYPES = {"kernels": "Int64", "busy_ns": "Int64", "span_ns": "Int64", "utilisation_ratio": "Float64",
          "busy_in_steps_ratio": "Float64"}  # fmt: skip


def _devices(trace: Trace) -> list[str]:
    codes = trace.codes("device")
    used = np.unique(codes.codes[trace.rows("kind", *DEVICE_WORK) & (codes.codes >= 0)])
    return sorted(codes.values[code] for code in used)


def _device(
    trace: Trace, name: str, counts: BoolArray, chosen: BoolArray, steps: BoolArray | None
) -> dict[str, object]:
    """The row of a device. ``steps``: the events whose union busy time is divided by; None: the span."""
    mine = trace.rows("device", name) & trace.rows("kind", *DEVICE_WORK)
    kernels = np.flatnonzero(counts & mine & trace.rows("kind", KERNEL))
    rank, ranks = rank_codes(trace)
    uses = np.zeros(ranks, np.bool_)
    uses[rank[mine]] = True
    busy = (rank[kernels], trace.ints("start_ns")[kernels], trace.end_ns[kernels])
    within = spans(trace, chosen) if steps is None else _events(trace, steps)
    mine_within = [part[uses[within[0]]] for part in within]
    both = [np.concatenate(parts) for parts in zip(busy, mine_within, strict=True)]
    busy_ns, whole_ns, either_ns = (_united(ranks, *part) for part in (busy, mine_within, both))
    product = next((device.name for device in trace.meta.devices if device.id == name), None)
    return {
        "device": name,
        "product": product if product is not None else pd.NA,
        "kernels": len(kernels),
        "busy_ns": busy_ns,
        "span_ns": whole_ns,
        "utilisation_ratio": float(ratio(busy_ns, whole_ns)),
        "busy_in_steps_ratio": float(ratio(busy_ns + whole_ns - either_ns, whole_ns)),
    }


def _events(trace: Trace, mask: BoolArray) -> tuple[IntArray, IntArray, IntArray]:
    return rank_codes(trace)[0][mask], trace.ints("start_ns")[mask], trace.end_ns[mask]


def _united(ranks: int, rank: IntArray, starts: IntArray, ends: IntArray) -> int:
    """A union within each rank, summed over ranks."""
    return int(intervals.union_length_by(rank, ranks, starts, ends).sum())


def _cpu(scope: str, value: float) -> dict[str, object]:
    missing = dict.fromkeys(("product", "kernels", "busy_ns", "span_ns", "busy_in_steps_ratio"), pd.NA)
    return {"device": f"cpu ({scope})", **missing, "utilisation_ratio": value}


VIEW = View(
    name="device",
    title="Device utilisation",
    description="busy time and utilisation of each device",
    table=table,
    explain_empty=lambda trace: "no device work and no CPU utilisation were recorded",
    native=True,
)
