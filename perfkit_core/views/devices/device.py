"""View ``device``: busy time and utilisation of each device.

A device is busy while at least one kernel runs on it. As in Paddle, utilisation is the busy time divided by the step
time of the ranks that use the device. Without steps, the divisor is the time from a rank's first to its last event.

Utilisation can exceed 1, because kernels that run outside steps count as busy time. ``busy_in_steps_ratio`` counts only
busy time in steps, so it is at most 1. If steps are chosen, only kernels that run in these steps count, even if an
earlier step launched them. If device work was not recorded, only the steps whose device work is complete count; without
such steps, the divisor is 0 and the utilisation unknown.

CPU utilisation is measured by the framework. The native table uses Paddle's step time, and counts only kernels that a
host event launched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import groupby, intervals
from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import Reduced, View, ViewRequest
from perfkit_core.trace.assembly.lost_records import measured
from perfkit_core.trace.model.columns import DEVICE, DEVICE_NAME, FIRST, Share, count, duration, key, share
from perfkit_core.trace.model.schema import DEVICE_WORK, KERNEL, MEMCPY
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import attribution, select
from perfkit_core.views.merging import merge_tables
from perfkit_core.views.steps import step_rows
from perfkit_core.views.tables import concat, frame, ratio

_TYPES: Final = {
    "device": "object", "product": "object", "kernels": "Int64", "busy_ns": "Int64", "copy_ns": "Int64",
    "span_ns": "Int64", "utilisation_ratio": "Float64", "busy_in_steps_ratio": "Float64",
}  # fmt: skip


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return the rows of the CPU, then one row per device, sorted by name. Columns: :data:`COLUMNS`. In rows
    of the CPU, only utilisation_ratio has a value. Raises UsageError."""
    missing = dict.fromkeys(_TYPES, pd.NA)
    cpu = trace.meta.cpu_utilisation.items()
    rows = [{**missing, "device": f"cpu ({scope})", "utilisation_ratio": value} for scope, value in cpu]
    rows += _devices(trace, request)
    return frame(rows, _TYPES)


def _devices(trace: Trace, request: ViewRequest) -> Iterator[dict[str, object]]:
    """Yield one row per device. Times are unions for each device and rank, summed over the ranks."""
    codes, (rank, ranks), chosen = trace.codes("device"), select.rank_codes(trace), select.in_steps(trace, request)
    complete = measured(trace)
    start, end, counts = trace.ints("start_ns"), trace.end_ns, trace.rows("kind", KERNEL)
    if request.native:
        counts, steps = counts & attribution.native_counted(trace), step_rows.native_steps(trace, chosen)
        spans = rank[steps], start[steps], end[steps]
    else:
        spans = select.spans(trace, chosen & complete)
    work = np.flatnonzero(trace.rows("kind", *DEVICE_WORK) & (codes.codes >= 0))
    pairs, pair = groupby.ranked(codes.codes[work] * np.int64(ranks) + rank[work], len(codes.values) * ranks)
    device, pair_rank = pairs // ranks, pairs % ranks

    # Repeat the step intervals of each rank for every device that the rank uses.
    step_rank, first, last = intervals.union_by(spans[0], ranks, *spans[1:])
    size = np.bincount(step_rank, minlength=ranks)[pair_rank]
    step_pair = np.repeat(np.arange(len(pairs)), size)
    at = np.searchsorted(step_rank, pair_rank)[step_pair] + np.arange(len(step_pair))
    at -= np.repeat(np.cumsum(size) - size, size)
    first, last = first[at], last[at]

    only_steps = request.steps is not None or not (request.native or complete.all())
    if only_steps:  # count only work that runs in the chosen steps, or in the complete steps if there are any
        runs_there = np.full(len(work), request.steps is None) & ~np.isin(pair, step_pair)
        for number, part in enumerate(groupby.parts(pair, len(pairs))):
            steps_of_pair = first[step_pair == number], last[step_pair == number]
            runs_there[part] |= intervals.covered_ns(steps_of_pair, start[work[part]], end[work[part]]) > 0
        work, pair = work[runs_there], pair[runs_there]
    copies, copying = work[trace.rows("kind", MEMCPY)[work]], pair[trace.rows("kind", MEMCPY)[work]]
    kernels, pair = work[counts[work]], pair[counts[work]]
    busy, copied, span, either = (
        intervals.union_length_by(groups, len(pairs), starts, ends)
        for groups, starts, ends in (
            (pair, start[kernels], end[kernels]),
            (copying, start[copies], end[copies]),
            (step_pair, first, last),
            (np.append(pair, step_pair), np.append(start[kernels], first), np.append(end[kernels], last)),
        )
    )
    inside = busy + span - either
    sums = np.zeros((5, len(codes.values)), np.int64)
    in_span = inside if request.steps is not None else np.where((span > 0) & only_steps, inside, busy)
    parts = np.bincount(pair, minlength=len(pairs)), in_span, copied, span, inside
    for total, values in zip(sums, parts, strict=True):
        np.add.at(total, device, values)
    products = {product.id: product.name for product in trace.meta.devices if product.name is not None}
    for code in sorted(np.unique(device).tolist(), key=codes.values.__getitem__):
        calls, busy_ns, copy_ns, span_ns, inside_ns = sums[:, code].tolist()
        yield {
            "device": codes.values[code],
            "product": products.get(codes.values[code], pd.NA),
            "kernels": calls,
            "busy_ns": busy_ns,
            "copy_ns": pd.NA if request.native else copy_ns,
            "span_ns": span_ns,
            "utilisation_ratio": float(ratio(busy_ns, span_ns)) if span_ns or complete.all() else pd.NA,
            "busy_in_steps_ratio": float(ratio(inside_ns, span_ns)) if span_ns or complete.all() else pd.NA,
        }


def _working(trace: Trace) -> frozenset[str | None]:
    devices = trace.codes("device")
    used = np.unique(devices.codes[trace.rows("kind", *DEVICE_WORK)]).tolist()
    return frozenset(devices.values[code] if code >= 0 else None for code in used)


def _merged(partials: Sequence[pd.DataFrame], request: ViewRequest) -> pd.DataFrame:
    rows = concat(partials)
    on_device = rows["span_ns"].notna()
    host = rows[~on_device].drop_duplicates("device")
    devices = merge_tables([rows[on_device].reset_index(drop=True)], COLUMNS).sort_values("device", kind="stable")
    return concat([host, devices])


COLUMNS: Final = (
    DEVICE_NAME,
    key("product", "Product", merge=FIRST),
    count("kernels", "Kernels", place=DEVICE),
    duration("busy_ns", "Busy", "union of the kernels of all streams", place=DEVICE),
    duration("copy_ns", "Copying", "union of the copies of all streams", place=DEVICE),
    duration("span_ns", "Span", "step time; without steps, the time range of all events", place=DEVICE),
    share("utilisation_ratio", "Utilisation", Share("busy_ns", column="span_ns")),  # of devices and of the CPU
    share("busy_in_steps_ratio", "Busy in steps", Share(column="span_ns"), place=DEVICE),
)

VIEW = View(
    name="device",
    title="Device utilisation",
    description="busy time and utilisation of each device",
    table=Reduced(table, _merged, of_trace=table, native=True, in_parts=_working),
    columns=COLUMNS,
    explain_empty=lambda trace: message("no device work and no CPU utilisation were recorded"),
)
