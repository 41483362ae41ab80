"""How much was copied and filled, in which direction, and how fast?"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.language.messages import message
from perfkit_core.model.columns import CALLS, DEVICE, DEVICE_NAME, KIND, ON_DEVICE, added_by, duration, key, rate, size
from perfkit_core.model.schema import MEMCPY, MEMSET
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.views import grouping
from perfkit_core.views.devices import launched_for
from perfkit_core.views.select import selected
from perfkit_core.views.tables import group, integers, plain, texts

GROUPINGS: Final = ("operator", "stream", "device", "module", "phase", "step", "rank")


TOLD_NS: Final = "told_ns"
"""Time of the copies whose size was recorded."""


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """One row a kind of copy and device; see :data:`COLUMNS`. Sizes are NA where no event tells. Raises UsageError."""
    return with_speed(measured(trace, request))


def measured(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """The columns of the table, but TOLD_NS in place of the speed. Raises UsageError."""
    rows = np.flatnonzero(selected(trace, request) & trace.rows("kind", MEMCPY, MEMSET))
    own = {"operator": ("operator", launched_for.operators), "module": ("module", launched_for.modules)}
    keys = {name: texts(trace.codes(name), rows) for name in ("kind", "copy_kind", "device")}
    groups = group(keys | grouping.keys(trace, request, rows, GROUPINGS, own))
    duration, moved = trace.ints("dur_ns")[rows], trace.ints("bytes", -1)[rows]
    size = groups.known_sum(moved, moved >= 0)
    columns = {"calls": groups.calls(), "bytes": size} | groups.statistics(duration, "device")
    columns[TOLD_NS] = groups.sum(np.where(moved < 0, 0, duration))
    return plain(pd.concat([groups.keys, pd.DataFrame(columns, index=groups.keys.index)], axis=1))


def with_speed(copies: pd.DataFrame) -> pd.DataFrame:
    """The table of measured copies: bytes over the time of those that tell."""
    told_ns = copies[TOLD_NS].to_numpy(np.int64)
    size = copies["bytes"].fillna(0).to_numpy(np.int64)
    speed = integers(size * 1_000_000_000 // np.maximum(told_ns, 1), told_ns > 0)
    return copies.drop(columns=TOLD_NS).assign(bytes_per_s=speed)


COLUMNS: Final = (
    KIND,
    key("copy_kind", "Copy kind"),
    DEVICE_NAME,
    *(known for known in added_by(GROUPINGS) if known.name != "device"),
    replace(CALLS, place=DEVICE),
    size("bytes", "Size", per_step=True, place=DEVICE),
    *ON_DEVICE,
    rate("bytes_per_s", "Bandwidth", place=DEVICE, description="of the copies whose size was recorded"),
)

VIEW = View(
    name="memcpy",
    title="Copies and fills",
    description="calls, bytes, time and bandwidth of memory copies and memsets, by direction",
    table=table,
    columns=COLUMNS,
    groupings=GROUPINGS,
    order="total_device_ns",
    explain_empty=lambda trace: message("no copies to, from or on a device were recorded"),
    reduction=MergedRows(
        partial=measured,
        columns=(duration(TOLD_NS, TOLD_NS),),
        finish=lambda table, request: with_speed(table),
    ),
)
