"""View ``kernels``: calls and device time of each kernel, with or without a recorded launch.

Times are sums over streams, as in Paddle's kernel summary and torch's device rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.algorithms import nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, TEXT, IntArray
from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.trace.model.columns import CALLS, DEVICE, DEVICE_NAME, NAME, ON_DEVICE, RATIO, Share, added_by, key
from perfkit_core.trace.model.schema import KERNEL
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import attribution, grouping, select
from perfkit_core.views.operators.calls import operator_names
from perfkit_core.views.tables import group, ratio, text_column_at, texts, without_categoricals

GROUPINGS: Final = ("operator", "stream", "device", "launch", "module", "phase", "step", "rank")
LAUNCH: Final = "launch"


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per combination of kernel name, device and groupings, with :data:`COLUMNS`. With ``--native``,
    devices are merged unless the request groups by device, and kernel names have no parameters. Raises UsageError."""
    rows = np.flatnonzero(select.selected(trace, request) & trace.rows("kind", KERNEL))
    keys: dict[str, Any] = {"name": texts(trace.codes("name"), rows)}
    if not request.native or "device" in request.by:
        keys["device"] = texts(trace.codes("device"), rows)
    for name in request.by:
        by_name = ViewRequest(by=(name,))
        keys |= parameters(trace, rows) if name == LAUNCH else grouping.keys(trace, by_name, rows, GROUPINGS, OF_LAUNCH)
    groups = group(keys)
    times = groups.statistics(trace.ints("dur_ns")[rows], "device")
    share = ratio(times["total_device_ns"], int(times["total_device_ns"].sum()))
    result = groups.keys.assign(calls=groups.calls(), **times, ratio=share)
    if request.native:
        result["name"] = attribution.short_kernel_names(pd.Categorical(result["name"]))
    return without_categoricals(result)


def operator_rows(trace: Trace) -> IntArray:
    """Return the row of the innermost operator around the launch of each device event (-1 if none), shape (rows,)."""
    nearest = np.append(nesting.nearest_on_path(trace.ints("parent"), trace.operators), NO_ROW)
    return nearest[trace.ints("launched_by")]


OF_LAUNCH: Final[Mapping[str, tuple[str, grouping.Key]]] = {
    "operator": ("operator", lambda trace, rows, _: text_column_at(operator_names(trace), operator_rows(trace)[rows])),
    "module": ("module", lambda trace, rows, _: texts(trace.codes("module"), rows)),
}
"""Groupings of device work by the innermost operator around its launch, and by its layer."""

_GRID: Final = r'"{} ?": ?\[ ?(?P<value>\d+, ?\d+, ?\d+) ?\]'
_NUMBER: Final = r'"(?:{})": ?(?P<value>\d{{1,18}})\b'
_OCCUPANCY: Final = r'"(?:est\.|theoretical) achieved occupancy %": ?(?P<value>\d{1,6}(?:\.\d{1,9})?)'


def parameters(trace: Trace, rows: IntArray) -> dict[str, Any]:
    """Return the launch parameters of kernels (null if not recorded). Columns of shape (len(rows),): ``grid`` and
    ``block`` as ``x,y,z``, ``registers`` per thread, ``shared_bytes`` per block, ``occupancy_ratio``."""
    encoded = trace.pick("args", rows).dictionary_encode()

    def extracted(pattern: str, kind: pa.DataType) -> Any:
        values = pc.struct_field(pc.extract_regex(encoded.dictionary.cast(pa.string()), pattern), "value").cast(kind)
        return values.take(encoded.indices).to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)

    return {
        "grid": extracted(_GRID.format("grid"), TEXT),
        "block": extracted(_GRID.format("block"), TEXT),
        "registers": extracted(_NUMBER.format("registers per thread"), pa.int64()),
        "shared_bytes": extracted(_NUMBER.format("shared memory"), pa.int64()),
        "occupancy_ratio": extracted(_OCCUPANCY, pa.float64()) / 100,
    }


COLUMNS: Final = (
    replace(NAME, thing="kernel"),
    DEVICE_NAME,
    *(column for column in added_by(GROUPINGS) if column.name != "device"),
    key("grid", "Grid", by=(LAUNCH,)),
    key("block", "Block", by=(LAUNCH,)),
    key("registers", "Registers", by=(LAUNCH,), description="registers per thread"),
    key("shared_bytes", "Shared", unit="bytes", by=(LAUNCH,), description="shared memory per block"),
    key("occupancy_ratio", "Occupancy", unit="ratio", by=(LAUNCH,)),
    replace(CALLS, place=DEVICE),
    *ON_DEVICE,
    replace(RATIO, merge=Share("total_device_ns"), place=DEVICE, description="share of the total time of all rows"),
)

VIEW = View(
    name="kernels",
    title="Kernels",
    description="calls and device time of each kernel",
    table=table,
    columns=COLUMNS,
    groupings=GROUPINGS,
    order="total_device_ns",
    explain_empty=lambda trace: message("no kernels on a device were recorded"),
    native=True,
    in_parts=lambda trace: (),
    reduction=MergedRows(),
)
