"""How much was copied and filled, in which direction, and how fast?"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.analyses import grouping
from perfkit_core.analyses.devices import launched_for
from perfkit_core.analyses.select import selected
from perfkit_core.analyses.tables import group, integers, plain, texts
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.schema import MEMCPY, MEMSET
from perfkit_core.trace import Trace

GROUPINGS: Final = ("operator", "stream", "device", "module", "phase", "step", "rank")


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Columns kind (memcpy, memset), copy_kind, device, [the groupings,] calls, bytes (NA where no event tells),
    total_device_ns, avg_device_ns, min_device_ns, max_device_ns, bytes_per_s (of the events that tell). Raises
    UsageError."""
    rows = np.flatnonzero(selected(trace, request) & trace.rows("kind", MEMCPY, MEMSET))
    own = {"operator": ("operator", launched_for.operators), "module": ("module", launched_for.modules)}
    keys = {name: texts(trace.codes(name), rows) for name in ("kind", "copy_kind", "device")}
    groups = group(keys | grouping.keys(trace, request, rows, GROUPINGS, own))
    duration, moved = trace.ints("dur_ns")[rows], trace.ints("bytes", -1)[rows]
    size = groups.known_sum(moved, moved >= 0)
    told_ns = groups.sum(np.where(moved < 0, 0, duration))
    speed = groups.sum(np.maximum(moved, 0)) * 1_000_000_000 // np.maximum(told_ns, 1)
    columns = {"calls": groups.calls(), "bytes": size} | groups.statistics(duration, "device")
    columns["bytes_per_s"] = integers(speed, told_ns > 0)
    return plain(pd.concat([groups.keys, pd.DataFrame(columns, index=groups.keys.index)], axis=1))


VIEW = View(
    name="memcpy",
    title="Copies and fills",
    description="calls, bytes, time and bandwidth of memory copies and memsets, by direction",
    table=table,
    groupings=GROUPINGS,
    order="total_device_ns",
    explain_empty=lambda trace: "no copies to, from or on a device were recorded",
    per_step=("calls", "bytes", "total_device_ns"),
)
