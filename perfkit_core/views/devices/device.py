"""How busy was each device?

A device is busy while at least one kernel runs on it (a union over streams). Utilisation is busy time over the union
of the steps of the ranks that use the device (without steps: the extent of their events), as Paddle has it: kernels
that run outside the steps count, so it can exceed 1. ``busy_in_steps_ratio`` is the share of the step time in which the
device is busy, never above 1. Of chosen steps, all of it counts where it runs: what an earlier step launched keeps the
device busy, too, and what they launched themselves does so only until they end. CPU utilisation is what the framework
itself measured. With ``native`` only kernels that a host event launched count, and the step time is Paddle's (see
``attribution``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms import groupby, intervals
from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.language.messages import message
from perfkit_core.model.columns import DEVICE, DEVICE_NAME, FIRST, Share, count, duration, key, share
from perfkit_core.model.schema import DEVICE_WORK, KERNEL
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import Reduction, View, ViewRequest
from perfkit_core.views.attribution import native_counted
from perfkit_core.views.select import in_steps, rank_codes, spans
from perfkit_core.views.steps.activity import covered_ns
from perfkit_core.views.steps.step_rows import native_steps
from perfkit_core.views.tables import merge_tables, ratio, stacked


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """One row a device; see :data:`COLUMNS`. Rows for the CPU have only utilisation_ratio."""
    chosen = in_steps(trace, request)
    counts = trace.rows("kind", KERNEL) & (native_counted(trace) if request.native else True)
    steps = _events(trace, native_steps(trace, chosen)) if request.native else spans(trace, chosen)
    rows = [_cpu(scope, value) for scope, value in trace.meta.cpu_utilisation.items()]
    rows += _devices(trace, counts, steps, only_there=request.steps is not None)
    return pd.DataFrame(rows, columns=["device", "product", *_TYPES]).astype(_TYPES)


Groups = tuple[IntArray, IntArray, IntArray]
"""Number of a group, start and end of each interval."""
_TYPES = {"kernels": "Int64", "busy_ns": "Int64", "span_ns": "Int64", "utilisation_ratio": "Float64",
          "busy_in_steps_ratio": "Float64"}  # fmt: skip


def _devices(trace: Trace, counts: BoolArray, steps: Groups, only_there: bool) -> Iterator[dict[str, object]]:
    """A row a device, by name. ``counts``: the kernels that count; ``steps``: of each rank, what busy time is divided
    by; ``only_there``: nothing counts but what runs in it."""
    codes, (rank, ranks) = trace.codes("device"), rank_codes(trace)
    work = np.flatnonzero(trace.rows("kind", *DEVICE_WORK) & (codes.codes >= 0))
    used, pair = groupby.ranked(codes.codes[work] * np.int64(ranks) + rank[work], len(codes.values) * ranks)
    device, of_rank = used // ranks, used % ranks
    within = _of_pairs(of_rank, ranks, steps)
    kernels, pair = work[counts[work]], pair[counts[work]]
    busy = (pair, trace.ints("start_ns")[kernels], trace.end_ns[kernels])
    if only_there:
        there = _touches(within, busy, len(used))
        busy = (busy[0][there], busy[1][there], busy[2][there])
    both = (np.append(busy[0], within[0]), np.append(busy[1], within[1]), np.append(busy[2], within[2]))
    running, whole, either = (intervals.union_length_by(part[0], len(used), *part[1:]) for part in (busy, within, both))
    inside = running + whole - either
    calls = np.bincount(busy[0], minlength=len(used))
    sums = [
        _added(device, values, len(codes.values))
        for values in (calls, inside if only_there else running, whole, inside)
    ]
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


def _touches(within: Groups, found: Groups, count: int) -> BoolArray:
    """True for those that run in what is of their group, shape (len(found[0]),)."""
    there = np.zeros(len(found[0]), np.bool_)
    for number, rows in enumerate(groupby.parts(found[0], count)):
        mine = within[0] == number
        there[rows] = covered_ns((within[1][mine], within[2][mine]), found[1][rows], found[2][rows]) > 0
    return there


def _events(trace: Trace, mask: BoolArray) -> Groups:
    return rank_codes(trace)[0][mask], trace.ints("start_ns")[mask], trace.end_ns[mask]


def _added(group: IntArray, values: IntArray, count: int) -> IntArray:
    total = np.zeros(count, np.int64)
    np.add.at(total, group, values)
    return total


def _row(name: str, product: str | None, kernels: int, busy: int, whole: int, inside: int) -> dict[str, object]:
    """``busy``, ``whole`` and ``inside`` (busy in the steps) are summed over the ranks."""
    return {
        "device": name,
        "product": product if product is not None else pd.NA,
        "kernels": kernels,
        "busy_ns": busy,
        "span_ns": whole,
        "utilisation_ratio": float(ratio(busy, whole)),
        "busy_in_steps_ratio": float(ratio(inside, whole)),
    }


def _cpu(scope: str, value: float) -> dict[str, object]:
    missing = dict.fromkeys(("product", "kernels", "busy_ns", "span_ns", "busy_in_steps_ratio"), pd.NA)
    return {"device": f"cpu ({scope})", **missing, "utilisation_ratio": value}


def _merged(partials: Sequence[pd.DataFrame], request: ViewRequest) -> pd.DataFrame:
    """Devices of one name added; of the host what the first rank that tells has measured."""
    rows = stacked(partials)
    of_device = rows["span_ns"].notna()
    host = rows[~of_device].drop_duplicates("device")
    added = merge_tables([rows[of_device].reset_index(drop=True)], COLUMNS).sort_values("device", kind="stable")
    return stacked([host, added])


COLUMNS: Final = (
    DEVICE_NAME,
    key("product", "Product", merge=FIRST),
    count("kernels", "Kernels", place=DEVICE),
    duration("busy_ns", "Busy", place=DEVICE, description="a union over streams"),
    duration("span_ns", "Span", place=DEVICE, description="of the steps"),
    share("utilisation_ratio", "Utilisation", Share("busy_ns", column="span_ns"), place=DEVICE),
    share("busy_in_steps_ratio", "Busy in steps", Share(column="span_ns"), place=DEVICE),
)

VIEW = View(
    name="device",
    title="Device utilisation",
    description="busy time and utilisation of each device",
    table=table,
    columns=COLUMNS,
    explain_empty=lambda trace: message("no device work and no CPU utilisation were recorded"),
    native=True,
    reduction=Reduction(table, _merged),
)
