"""View ``memcpy``: bytes, time and bandwidth of memcpy and memset, by direction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.trace.model.columns import (
    CALLS,
    DEVICE,
    DEVICE_NAME,
    KIND,
    ON_DEVICE,
    added_by,
    duration,
    key,
    rate,
    size,
)
from perfkit_core.trace.model.schema import MEMCPY, MEMSET
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import grouping, select
from perfkit_core.views.devices.kernels import OF_LAUNCH
from perfkit_core.views.tables import group, integers, texts, without_categoricals

GROUPINGS: Final = ("operator", "stream", "device", "module", "phase", "step", "rank")
_SIZED_NS: Final = "told_ns"  # do not change this name: saved files contain it
"""Column of :func:`measured`: time of the copies whose size was recorded."""


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per combination of kind, copy kind, device and groupings, with :data:`COLUMNS`. Size and bandwidth
    are NA if no copy of the row has a recorded size. Raises UsageError."""
    return with_bandwidth(measured(trace, request))


def measured(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return :func:`table` with the column ``_SIZED_NS`` instead of the bandwidth. Raises UsageError."""
    rows = np.flatnonzero(select.selected(trace, request) & trace.rows("kind", MEMCPY, MEMSET))
    keys = {name: texts(trace.codes(name), rows) for name in ("kind", "copy_kind", "device")}
    groups = group(keys | grouping.keys(trace, request, rows, GROUPINGS, OF_LAUNCH))
    dur_ns, size = trace.ints("dur_ns")[rows], trace.ints("bytes", -1)[rows]
    columns: dict[str, Any] = {"calls": groups.calls(), "bytes": groups.known_sum(size, size >= 0)}
    columns |= groups.statistics(dur_ns, "device")
    return without_categoricals(groups.keys.assign(**columns, **{_SIZED_NS: groups.sum(np.where(size < 0, 0, dur_ns))}))


def with_bandwidth(copies: pd.DataFrame) -> pd.DataFrame:
    """Replace the column ``_SIZED_NS`` by the bandwidth: ``bytes`` divided by ``_SIZED_NS``, in bytes per second."""
    sized_ns = copies[_SIZED_NS].to_numpy(np.int64)
    size = (
        copies["bytes"].fillna(0).to_numpy(object)
    )  # Python's integers: 10 GB times the ns of a second exceed 64 bits
    bandwidth = integers((size * 1_000_000_000 // np.maximum(sized_ns, 1)).astype(np.int64), sized_ns > 0)
    return copies.drop(columns=_SIZED_NS).assign(bytes_per_s=bandwidth)


COLUMNS: Final = (
    KIND,
    key("copy_kind", "Copy kind"),
    DEVICE_NAME,
    *(column for column in added_by(GROUPINGS) if column.name != "device"),
    replace(CALLS, place=DEVICE),
    size("bytes", "Size", per_step=True, place=DEVICE),
    *ON_DEVICE,
    rate("bytes_per_s", "Bandwidth", place=DEVICE),
)

VIEW = View(
    name="memcpy",
    title="Copies and memsets",
    description="calls, bytes, time and bandwidth of memory copies and memsets, by direction",
    table=table,
    columns=COLUMNS,
    groupings=GROUPINGS,
    order="total_device_ns",
    explain_empty=lambda trace: message("no copies to, from or on a device were recorded"),
    in_parts=lambda trace: (),
    reduction=MergedRows(
        partial=measured,
        columns=(duration(_SIZED_NS, _SIZED_NS),),
        finish=lambda table, request: with_bandwidth(table),
    ),
)
