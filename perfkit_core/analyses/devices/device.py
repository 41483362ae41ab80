"""How busy was each device?

A device is busy while at least one kernel runs on it (a union over streams). Utilisation is busy time over the union
of the steps of the ranks that use the device (without steps: the extent of their events), as Paddle has it: kernels
that run outside the steps count, so it can exceed 1. ``busy_in_steps_ratio`` is the share of the step time in which the
device is busy, never above 1. CPU utilisation is what the framework itself measured. With ``native`` only kernels that
a host event launched count, and the step time is Paddle's (see ``native_rules``).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from perfkit_core import grouped, intervals
from perfkit_core.analyses.native_rules import counted, native_steps
from perfkit_core.analyses.select import in_steps
from perfkit_core.analyses.span import rank_codes, spans
from perfkit_core.analyses.tables import ratio
from perfkit_core.language import in_english
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
    rows += _devices(trace, counts, chosen, steps)
    return pd.DataFrame(rows, columns=["device", "product", *_TYPES]).astype(_TYPES)


Groups = tuple[IntArray, IntArray, IntArray]
"""Number of a group, start and end of each interval."""
_TYPES = {"kernels": "Int64", "busy_ns": "Int64", "span_ns": "Int64", "utilisation_ratio": "Float64",
          "busy_in_steps_ratio": "Float64"}  # fmt: skip


def _devices(
    trace: Trace, counts: BoolArray, chosen: BoolArray, steps: BoolArray | None
) -> Iterator[dict[str, object]]:
    """A row a device, by name. ``steps``: the events whose union busy time is divided by; None: the span."""
    codes, (rank, ranks) = trace.codes("device"), rank_codes(trace)
    work = np.flatnonzero(trace.rows("kind", *DEVICE_WORK) & (codes.codes >= 0))
    used, pair = grouped.ranked(codes.codes[work] * np.int64(ranks) + rank[work], len(codes.values) * ranks)
    device, of_rank = used // ranks, used % ranks
    counted = (counts & trace.rows("kind", KERNEL))[work]
    kernels, pair = work[counted], pair[counted]
    busy = (pair, trace.ints("start_ns")[kernels], trace.end_ns[kernels])
    within = _of_pairs(of_rank, ranks, spans(trace, chosen) if steps is None else _events(trace, steps))
    either = [np.concatenate(parts) for parts in zip(busy, within, strict=True)]
    united = [intervals.union_length_by(part[0], len(used), *part[1:]) for part in (busy, within, either)]
    sums = [_added(device, values, len(codes.values)) for values in (np.bincount(pair, minlength=len(used)), *united)]
    products = {device.id: device.name for device in trace.meta.devices}
    for code in sorted(np.unique(device).tolist(), key=codes.values.__getitem__):
        yield _row(codes.values[code], products.get(codes.values[code]), *(int(each[code]) for each in sums))


def _of_pairs(of_rank: IntArray, ranks: int, found: Groups) -> Groups:
    """What is of a rank for each of the pairs of a device and a rank: number of the pair, start, end."""
    rank, start, end = intervals.union_by(found[0], ranks, *found[1:])
    size = np.bincount(rank, minlength=ranks)[of_rank]
    pair = np.repeat(np.arange(len(of_rank)), size)
    at = np.searchsorted(rank, of_rank)[pair] + np.arange(len(pair)) - np.repeat(np.cumsum(size) - size, size)
    return pair, start[at], end[at]


def _events(trace: Trace, mask: BoolArray) -> Groups:
    return rank_codes(trace)[0][mask], trace.ints("start_ns")[mask], trace.end_ns[mask]


def _added(group: IntArray, values: IntArray, count: int) -> IntArray:
    total = np.zeros(count, np.int64)
    np.add.at(total, group, values)
    return total


def _row(name: str, product: str | None, kernels: int, busy: int, whole: int, either: int) -> dict[str, object]:
    """``busy`` and ``whole`` are summed over the ranks, ``either`` is the union of both in each."""
    return {
        "device": name,
        "product": product if product is not None else pd.NA,
        "kernels": kernels,
        "busy_ns": busy,
        "span_ns": whole,
        "utilisation_ratio": float(ratio(busy, whole)),
        "busy_in_steps_ratio": float(ratio(busy + whole - either, whole)),
    }


def _cpu(scope: str, value: float) -> dict[str, object]:
    missing = dict.fromkeys(("product", "kernels", "busy_ns", "span_ns", "busy_in_steps_ratio"), pd.NA)
    return {"device": f"cpu ({scope})", **missing, "utilisation_ratio": value}


VIEW = View(
    name="device",
    title="Device utilisation",
    description="busy time and utilisation of each device",
    table=table,
    explain_empty=lambda trace: in_english("no device work and no CPU utilisation were recorded"),
    native=True,
)
