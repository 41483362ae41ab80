"""Views of the work of devices. Times are sums over streams, as in Paddle's kernel summary and torch's device rows.

- ``kernels``: calls and device time of each kernel, with or without a recorded launch.
- ``memcpy``: bytes, time and bandwidth of memcpy and memset, by direction.
- ``device_tasks``: kernels by the type of operation and the unit that the vendor names, as in its own table (Ascend:
  ``op_statistic.csv``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.algorithms.arrays import NO_ROW, TEXT, BoolArray, IntArray
from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import Grouped, View, ViewRequest
from perfkit_core.trace.model import device_task
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.columns import (
    CALLS,
    DEVICE,
    DEVICE_NAME,
    KIND,
    NAME,
    ON_DEVICE,
    RATIO,
    Share,
    added_by,
    duration,
    key,
    measured,
    rate,
    size,
)
from perfkit_core.trace.model.schema import KERNEL, MEMCPY, MEMSET
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import attribution, grouping
from perfkit_core.views.communication.instances import communication
from perfkit_core.views.tables import integers, texts, without_categoricals

GROUPINGS: Final = ("operator", "stream", "device", "launch", "module", "phase", "step", "rank")
LAUNCH: Final = "launch"


def _keys(trace: Trace, request: ViewRequest, rows: IntArray) -> dict[str, Any]:
    """Return name, device and groupings. With ``--native``, devices are merged unless the request groups by device."""
    keys: dict[str, Any] = {"name": texts(trace.codes("name"), rows)}
    if not request.native or "device" in request.by:
        keys["device"] = texts(trace.codes("device"), rows)
    for name in request.by:
        grouped = parameters(trace, rows) if name == LAUNCH else None
        keys |= grouped or grouping.keys(trace, ViewRequest(by=(name,)), rows, GROUPINGS)
    return keys


def _with_short_names(table: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    """Return the table with the kernels' names as the framework's table prints them: without parameters."""
    if not request.native:
        return table
    return without_categoricals(table.assign(name=attribution.short_kernel_names(pd.Categorical(table["name"]))))


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
    key("registers", "Registers", "registers per thread", by=(LAUNCH,)),
    key("shared_bytes", "Shared", "shared memory per block", unit="bytes", by=(LAUNCH,)),
    key("occupancy_ratio", "Occupancy", unit="ratio", by=(LAUNCH,)),
    replace(CALLS, place=DEVICE),
    *ON_DEVICE,
    replace(RATIO, merge=Share("total_device_ns"), place=DEVICE, description="share of the total time of all rows"),
)

VIEW = View(
    name="kernels",
    title="Kernels",
    description="calls and device time of each kernel",
    table=Grouped(
        events=lambda trace, request: trace.rows("kind", KERNEL),
        keys=_keys,
        values=measured("device", "dur_ns"),
        finish=_with_short_names,
        native=True,
        in_parts=lambda trace: (),
    ),
    columns=COLUMNS,
    groupings=GROUPINGS,
    order="total_device_ns",
    explain_empty=lambda trace: message("no kernels on a device were recorded"),
)


MEMCPY_GROUPINGS: Final = ("operator", "stream", "device", "module", "phase", "step", "rank")
_SIZED_NS: Final = "sized_ns"
"""Column of the time of the copies whose size was recorded, which the bandwidth is made of."""


def _sized_ns(trace: Trace, request: ViewRequest, rows: IntArray) -> IntArray:
    return np.where(trace.ints("bytes")[rows] < 0, 0, trace.ints("dur_ns")[rows])


def _with_bandwidth(copies: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    """Replace the column ``_SIZED_NS`` by the bandwidth: ``bytes`` divided by ``_SIZED_NS``, in bytes per second."""
    sized_ns = copies[_SIZED_NS].to_numpy(np.int64)
    size = (
        copies["bytes"].fillna(0).to_numpy(object)
    )  # Python's integers: 10 GB times the ns of a second exceed 64 bits
    bandwidth = integers((size * 1_000_000_000 // np.maximum(sized_ns, 1)).astype(np.int64), sized_ns > 0)
    return copies.drop(columns=_SIZED_NS).assign(bytes_per_s=bandwidth)


MEMCPY_COLUMNS: Final = (
    KIND,
    key("copy_kind", "Copy kind"),
    DEVICE_NAME,
    *(column for column in added_by(MEMCPY_GROUPINGS) if column.name != "device"),
    replace(CALLS, place=DEVICE),
    size("bytes", "Size", over="steps", place=DEVICE),
    *ON_DEVICE,
    rate("bytes_per_s", "Bandwidth", place=DEVICE),
)

MEMCPY_VIEW = View(
    name="memcpy",
    title="Copies and memsets",
    description="calls, bytes, time and bandwidth of memory copies and memsets, by direction",
    table=Grouped(
        events=lambda trace, request: trace.rows("kind", MEMCPY, MEMSET),
        keys=("kind", "copy_kind", "device"),
        values=measured("device", "dur_ns") | {"bytes": "bytes", _SIZED_NS: _sized_ns},
        finish=_with_bandwidth,
        columns=(duration(_SIZED_NS, _SIZED_NS),),
        in_parts=lambda trace: (),
    ),
    columns=MEMCPY_COLUMNS,
    groupings=MEMCPY_GROUPINGS,
    order="total_device_ns",
    explain_empty=lambda trace: message("no copies to, from or on a device were recorded"),
)


TASK_GROUPINGS: Final = ("device", "stream", "step", "phase", "module", "rank")


@once
def _described(trace: Trace) -> IntArray:
    """Return for each event the place of its description in the side table, or -1, shape (rows,)."""
    place = np.full(len(trace), NO_ROW)
    rows = trace.tables[device_task.TABLE.name]["row"].to_numpy()
    place[rows] = np.arange(len(rows))
    return place


def _typed_kernels(trace: Trace, request: ViewRequest) -> BoolArray:
    """Return the mask of the kernels with a type, without those of collectives, as the vendor counts."""
    types = trace.tables[device_task.TABLE.name]["type"].is_valid().to_numpy()
    place = _described(trace)
    typed: BoolArray = np.append(types, False)[place]
    return typed & trace.rows("kind", KERNEL) & ~communication(trace).device


def _task_keys(trace: Trace, request: ViewRequest, rows: IntArray) -> dict[str, Any]:
    table = trace.tables[device_task.TABLE.name].select(["type", "core"]).take(_described(trace)[rows]).to_pandas()
    keys: dict[str, Any] = {name: table[name].astype("category") for name in table.columns}
    return keys | grouping.keys(trace, request, rows, TASK_GROUPINGS)


def _wait_ns(trace: Trace, request: ViewRequest, rows: IntArray) -> Any:
    waits = trace.tables[device_task.TABLE.name]["wait_ns"].combine_chunks().fill_null(NO_ROW).to_numpy()
    chosen = waits[_described(trace)[rows]]
    return integers(np.maximum(chosen, 0), chosen >= 0)


TASKS_VIEW = View(
    name="device_tasks",
    title="Kernels by type",
    description="calls, device time and wait of kernels by type of operation and unit, as the vendor names them",
    table=Grouped(
        events=_typed_kernels,
        keys=_task_keys,
        values=measured("device", "dur_ns") | {"wait_ns": _wait_ns},
    ),
    columns=(
        key("type", "Type"),
        key("core", "Unit"),
        *added_by(TASK_GROUPINGS),
        replace(CALLS, place=DEVICE),
        *ON_DEVICE,
        replace(RATIO, merge=Share("total_device_ns"), place=DEVICE, description="share of the total time of all rows"),
        duration("wait_ns", "Wait", place=DEVICE, description="sum of recorded times between kernels of a stream"),
    ),
    groupings=TASK_GROUPINGS,
    order="total_device_ns",
    explain_empty=lambda trace: message(
        "no types of kernels were recorded: Ascend's profiler records them from level 1 on, other profilers do not"
    ),
)
