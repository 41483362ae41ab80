"""Which kernels kept the device busy?

Sums over streams and devices, as Paddle's kernel summary and torch's device rows have them; kernels whose launch was
not recorded count too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.language.messages import message
from perfkit_core.model.columns import CALLS, DEVICE, DEVICE_NAME, NAME, ON_DEVICE, RATIO, Share, added_by, key
from perfkit_core.model.schema import KERNEL
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.views import grouping
from perfkit_core.views.attribution import short_kernel_names
from perfkit_core.views.devices import launched_for
from perfkit_core.views.select import selected
from perfkit_core.views.tables import group, plain, ratio, texts

GROUPINGS: Final = ("operator", "stream", "device", "launch", "module", "phase", "step", "rank")
LAUNCH: Final = "launch"


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """One row a kernel and device; see :data:`COLUMNS`.

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


_GRID: Final = r'"{} ?": ?\[ ?(?P<found>\d+, ?\d+, ?\d+) ?\]'
_NUMBER: Final = r'"(?:{})": ?(?P<found>\d{{1,18}})\b'
_SHARE: Final = r'"(?:est\.|theoretical) achieved occupancy %": ?(?P<found>\d{1,6}(?:\.\d{1,9})?)'


def parameters(trace: Trace, rows: IntArray) -> dict[str, Any]:
    """Columns grid, block (``x,y,z``), registers (of a thread), shared_bytes (of a block), occupancy_ratio, null where
    it was not recorded. Shape (len(rows),)."""
    encoded = trace.pick("args", rows).dictionary_encode()
    texts = encoded.dictionary
    code = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
    return {
        "grid": _spread(_found(texts, _GRID.format("grid")), code),
        "block": _spread(_found(texts, _GRID.format("block")), code),
        "registers": _integers(_found(texts, _NUMBER.format("registers per thread")), code),
        "shared_bytes": _integers(_found(texts, _NUMBER.format("shared memory")), code),
        "occupancy_ratio": _share(_found(texts, _SHARE), code),
    }


def _found(texts: pa.Array, pattern: str) -> pa.Array:
    return pc.struct_field(pc.extract_regex(texts.cast(pa.string()), pattern), "found")


def _spread(values: pa.Array, code: IntArray) -> pd.Categorical:
    encoded = values.dictionary_encode()
    codes = np.append(pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False), -1)
    return pd.Categorical.from_codes(codes[code], categories=encoded.dictionary.to_pylist())


def _integers(values: pa.Array, code: IntArray) -> pd.arrays.IntegerArray:
    numbers = pc.fill_null(values.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    spread = np.append(numbers, -1)[code]
    return pd.arrays.IntegerArray(np.maximum(spread, 0).astype(np.int64), spread < 0)


def _share(values: pa.Array, code: IntArray) -> Any:
    percent = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.append(percent, np.nan)[code] / 100


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
    explain_empty=lambda trace: message("no kernels on a device were recorded"),
    native=True,
    reduction=MergedRows(),
)
