"""How much was copied and filled, in which direction, and how fast?"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core.analyses.select import selected
from perfkit_core.analyses.tables import plain, statistics, texts
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.schema import MEMCPY, MEMSET
from perfkit_core.trace import BoolArray, IntArray, Trace


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Columns kind (memcpy, memset), copy_kind, device, calls, bytes (null where no event tells), total_device_ns,
    avg_device_ns, min_device_ns, max_device_ns, bytes_per_s (of the events that tell)."""
    rows = np.flatnonzero(selected(trace, request) & trace.rows("kind", MEMCPY, MEMSET))
    keys = {name: texts(trace.codes(name), rows) for name in ("kind", "copy_kind", "device")}
    duration, moved = trace.ints("dur_ns")[rows], trace.ints("bytes", -1)[rows]
    result = statistics(keys, duration, "device")
    told = pd.DataFrame({**keys, "bytes": np.where(moved < 0, 0, moved), "ns": np.where(moved < 0, 0, duration),
                         "told": (moved >= 0).astype(np.int64)})  # fmt: skip
    sums = told.groupby(list(keys), sort=False, dropna=False, observed=True)[["bytes", "ns", "told"]].sum()
    bytes_, ns = sums["bytes"].to_numpy(), sums["ns"].to_numpy()
    result["bytes"] = _known(bytes_, sums["told"].to_numpy() > 0)
    result["bytes_per_s"] = _known(bytes_ * 1_000_000_000 // np.maximum(ns, 1), ns > 0)
    return plain(result[[*keys, "calls", "bytes", *_TIMES, "bytes_per_s"]])


_TIMES = ("total_device_ns", "avg_device_ns", "min_device_ns", "max_device_ns")


def _known(values: IntArray, known: BoolArray) -> pd.Series[int]:
    return pd.Series(pd.arrays.IntegerArray(values.astype(np.int64), ~known))


VIEW = View(
    name="memcpy",
    title="Copies and fills",
    description="calls, bytes, time and bandwidth of memory copies and memsets, by direction",
    table=table,
    order="total_device_ns",
    explain_empty=lambda trace: "no copies to, from or on a device were recorded",
)
