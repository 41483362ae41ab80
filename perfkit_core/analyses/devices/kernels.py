"""Which kernels kept the device busy?

Sums over streams and devices, as Paddle's kernel summary and torch's device rows have them; kernels whose launch was
not recorded count too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.analyses import grouping
from perfkit_core.analyses.devices import launched_for
from perfkit_core.analyses.devices.launch import parameters
from perfkit_core.analyses.native_text import short_kernel_names
from perfkit_core.analyses.select import selected
from perfkit_core.analyses.tables import group, plain, ratio, texts
from perfkit_core.language import in_english
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.schema import KERNEL
from perfkit_core.table_columns import CALLS, DEVICE, DEVICE_NAME, NAME, ON_DEVICE, RATIO, Share, added_by, key
from perfkit_core.trace import IntArray, Trace

GROUPINGS: Final = ("operator", "stream", "device", "launch", "module", "phase", "step", "rank")
LAUNCH: Final = "launch"


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Columns name, device, [operator, stream, module, phase, step, rank; by launch: grid, block, registers,
    shared_bytes, occupancy_ratio,] calls, total/avg/min/max_device_ns, ratio (of the time of all rows).

    Natively kernels of one name are one row on all devices, and their names end with the template arguments. Raises
    UsageError."""
    rows = np.flatnonzero(selected(trace, request) & trace.rows("kind", KERNEL))
    groups = group(_keys(trace, request, rows))
    times = groups.statistics(trace.ints("dur_ns")[rows], "device")
    share = ratio(times["total_device_ns"], int(times["total_device_ns"].sum()))
    columns = {"calls": groups.calls()} | times | {"ratio": share}
    keys = groups.keys
    if request.native:
        keys = keys.assign(name=short_kernel_names(pd.Categorical(keys["name"])))
    return plain(pd.concat([keys, pd.DataFrame(columns, index=keys.index)], axis=1))


def _keys(trace: Trace, request: ViewRequest, rows: IntArray) -> dict[str, Any]:
    wanted = dict.fromkeys(request.by)
    found: dict[str, Any] = {"name": texts(trace.codes("name"), rows)}
    if not request.native or "device" in wanted:
        found["device"] = texts(trace.codes("device"), rows)
    own = {"operator": ("operator", launched_for.operators), "module": ("module", launched_for.modules)}
    for name in wanted:
        one = ViewRequest(by=(name,))
        found |= parameters(trace, rows) if name == LAUNCH else grouping.keys(trace, one, rows, GROUPINGS, own)
    return found


COLUMNS: Final = (
    NAME,
    DEVICE_NAME,
    *(known for known in added_by(GROUPINGS) if known.name != "device"),
    key("grid", "Grid", by=(LAUNCH,)),
    key("block", "Block", by=(LAUNCH,)),
    key("registers", "Registers", by=(LAUNCH,), description="of a thread"),
    key("shared_bytes", "Shared", unit="bytes", by=(LAUNCH,), description="of a block"),
    key("occupancy_ratio", "Occupancy", unit="ratio", by=(LAUNCH,)),
    replace(CALLS, place=DEVICE),
    *ON_DEVICE,
    replace(RATIO, merge=Share("total_device_ns"), place=DEVICE, description="of the time of all rows"),
)

VIEW = View(
    name="kernels",
    title="Kernels",
    description="calls and time of each kernel on the device",
    table=table,
    columns=COLUMNS,
    groupings=GROUPINGS,
    order="total_device_ns",
    explain_empty=lambda trace: in_english("no kernels on a device were recorded"),
    native=True,
    reduction=MergedRows(),
)
