"""View ``device``: busy time and utilisation of each device.

A device is busy while at least one kernel runs on it. As in Paddle, utilisation divides by the union of the steps of
the ranks that use the device (without steps: the extent of their events) and counts kernels outside of steps, so it can
exceed 1. ``busy_in_steps_ratio`` is the busy share of the step time, at most 1. For chosen steps, kernels count where
they run, including those launched by earlier steps. CPU utilisation is the framework's own measurement. ``native``
counts only kernels launched by a host event, and uses Paddle's step time (see ``attribution``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms import groupby, intervals
from perfkit_core.language.messages import message
from perfkit_core.model.columns import DEVICE, DEVICE_NAME, FIRST, Share, count, duration, key, share
from perfkit_core.model.schema import DEVICE_WORK, KERNEL
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import Reduction, View, ViewRequest
from perfkit_core.views import attribution, select
from perfkit_core.views.merging import merge_tables
from perfkit_core.views.steps import activity, step_rows
from perfkit_core.views.tables import ratio, stacked

_TYPES: Final = {"kernels": "Int64", "busy_ns": "Int64", "span_ns": "Int64", "utilisation_ratio": "Float64",
                 "busy_in_steps_ratio": "Float64"}  # fmt: skip


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per device, with :data:`COLUMNS`. Rows of the CPU have only utilisation_ratio."""
    missing = dict.fromkeys(("product", *_TYPES), pd.NA)
    cpu = trace.meta.cpu_utilisation.items()
    rows = [{"device": f"cpu ({scope})", **missing, "utilisation_ratio": value} for scope, value in cpu]
    return pd.DataFrame([*rows, *_devices(trace, request)], columns=["device", "product", *_TYPES]).astype(_TYPES)


def _devices(trace: Trace, request: ViewRequest) -> Iterator[dict[str, object]]:
    """Yield a row per device, by name. Times are unions per device and rank, summed over the ranks."""
    codes, (rank, ranks), chosen = trace.codes("device"), select.rank_codes(trace), select.in_steps(trace, request)
    start, end, counts = trace.ints("start_ns"), trace.end_ns, trace.rows("kind", KERNEL)
    if request.native:
        counts, steps = counts & attribution.native_counted(trace), step_rows.native_steps(trace, chosen)
        of_steps = rank[steps], start[steps], end[steps]
    else:
        of_steps = select.spans(trace, chosen)
    work = np.flatnonzero(trace.rows("kind", *DEVICE_WORK) & (codes.codes >= 0))
    used, pair = groupby.ranked(codes.codes[work] * np.int64(ranks) + rank[work], len(codes.values) * ranks)
    device, of_rank = used // ranks, used % ranks

    # Denominators of busy time, per pair of device and rank: number of the pair, start and end.
    group, first, last = intervals.union_by(of_steps[0], ranks, *of_steps[1:])
    size = np.bincount(group, minlength=ranks)[of_rank]
    within = np.repeat(np.arange(len(of_rank)), size)
    at = np.searchsorted(group, of_rank)[within] + np.arange(len(within)) - np.repeat(np.cumsum(size) - size, size)
    first, last = first[at], last[at]

    kernels, pair = work[counts[work]], pair[counts[work]]
    if request.steps is not None:  # count only kernels that run in the steps
        there = np.zeros(len(kernels), np.bool_)
        for number, part in enumerate(groupby.parts(pair, len(used))):
            steps_of_pair = first[within == number], last[within == number]
            there[part] = activity.covered_ns(steps_of_pair, start[kernels[part]], end[kernels[part]]) > 0
        kernels, pair = kernels[there], pair[there]
    busy, whole, either = (
        intervals.union_length_by(groups, len(used), starts, ends)
        for groups, starts, ends in (
            (pair, start[kernels], end[kernels]),
            (within, first, last),
            (np.append(pair, within), np.append(start[kernels], first), np.append(end[kernels], last)),
        )
    )
    inside = busy + whole - either
    sums = np.zeros((4, len(codes.values)), np.int64)
    parts = np.bincount(pair, minlength=len(used)), busy if request.steps is None else inside, whole, inside
    for total, values in zip(sums, parts, strict=True):
        np.add.at(total, device, values)
    products = {known.id: known.name for known in trace.meta.devices}
    for code in sorted(np.unique(device).tolist(), key=codes.values.__getitem__):
        calls, busy_ns, span_ns, inside_ns = sums[:, code].tolist()
        name = codes.values[code]
        product = products.get(name)
        yield {
            "device": name,
            "product": pd.NA if product is None else product,
            "kernels": calls,
            "busy_ns": busy_ns,
            "span_ns": span_ns,
            "utilisation_ratio": float(ratio(busy_ns, span_ns)),
            "busy_in_steps_ratio": float(ratio(inside_ns, span_ns)),
        }


def _merged(partials: Sequence[pd.DataFrame], request: ViewRequest) -> pd.DataFrame:
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
