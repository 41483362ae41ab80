"""A view that perfkit_core does not have, the busy time of each layer, and an exporter of the same table."""

from __future__ import annotations

from typing import BinaryIO

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import intervals
from perfkit_core.plugins.contracts import Exporter, ExportOptions, View, ViewRequest
from perfkit_core.trace.model.columns import CALLS, DEVICE, duration, key
from perfkit_core.trace.model.schema import KERNEL
from perfkit_core.trace.model.trace import Trace


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return the layers of the graph. The columns are those of :data:`COLUMNS`."""
    modules = trace.codes("module")
    scopes, scope = np.unique([value.rpartition("/")[0] for value in modules.values], return_inverse=True)
    layer = modules.lookup(scope.astype(np.int64), -1)
    rows = np.flatnonzero(trace.rows("kind", KERNEL) & (layer >= 0))
    busy = intervals.union_length_by(layer[rows], len(scopes), trace.ints("start_ns")[rows], trace.end_ns[rows])
    calls = np.bincount(layer[rows], minlength=len(scopes)).astype(np.int64)
    return pd.DataFrame({"layer": scopes.astype(object), "calls": calls, "busy_ns": busy})


COLUMNS = (
    key("layer", "Layer", "scope of the graph node"),
    CALLS,
    duration("busy_ns", "Busy", "union over the streams", place=DEVICE, over="steps"),
)
VIEW = View(
    name="layers",
    title="Layers",
    description="calls and busy time of each layer of the graph",
    table=table,
    columns=COLUMNS,
    order="busy_ns",
)


def write(trace: Trace, file: BinaryIO, options: ExportOptions) -> str:
    """Write a line for each layer: its name, a tab, and its busy time in ns."""
    found = table(trace, ViewRequest()).query("calls > 0")
    for layer, busy in zip(found["layer"], found["busy_ns"], strict=True):
        file.write(f"{layer}\t{busy}\n".encode())
    return "" if len(found) else "no layers were recorded"


EXPORTER = Exporter("layers", "busy time of each layer, a line each", (".layers.tsv",), write)
