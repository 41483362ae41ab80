"""View ``fluid_memcpy``: memcpy time by mode (asynchronous, synchronous) and direction, inside and outside operators.

The mode follows from the name of the call that launched the copy (``cudaMemcpyAsync``), or from the name of an event
that the framework recorded around this call (``GpuMemcpySync:GPU->CPU``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import arrays, nesting, trees
from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.trace.model import columns, schema
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import select
from perfkit_core.views.fluid_overhead import GROUP, direction, total_time

MODES: Final = ("GpuMemcpyAsync", "GpuMemcpySync", "GpuMemcpy (launch not recorded)")
_ASYNC, _SYNC, _UNKNOWN = range(3)
_NAMES_MODE: Final = "(?i)memcpy_?a?sync"


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return a tree of modes (depth 0) and directions (1), with :data:`COLUMNS`. The ratio is NA without operators."""
    rows = np.flatnonzero(select.selected(trace, request) & trace.rows("kind", schema.MEMCPY))
    names, launched_by = trace.codes("name"), trace.ints("launched_by")[rows]
    names_mode = trace.host & names.lookup(arrays.matches(names.values, _NAMES_MODE), False)
    around = nesting.outermost(trace.ints("parent"), names_mode)[launched_by]
    call = np.where(trace.rows("kind", schema.RUNTIME, schema.SYNC)[launched_by], launched_by, arrays.NO_ROW)
    event = np.where(launched_by == arrays.NO_ROW, arrays.NO_ROW, np.where(around >= 0, around, call))
    asynchronous = names.lookup(arrays.matches(names.values, "(?i)async"), False)[event]

    kinds = trace.codes("copy_kind")
    directions = np.array([*map(direction, kinds.values), direction("")], dtype=object)
    copies = pd.DataFrame({
        "mode": np.where(event == arrays.NO_ROW, _UNKNOWN, np.where(asynchronous, _ASYNC, _SYNC)),
        "name": directions[kinds.codes[rows]],
        "ns": trace.ints("dur_ns")[rows],
    })  # fmt: skip
    parts = []
    for depth, keys in enumerate((["mode"], ["mode", "name"])):
        sums = copies.groupby(keys)["ns"].agg(calls="count", total_ns="sum").reset_index()
        labels = sums["name"] if depth else [MODES[mode] for mode in sums["mode"]]
        parts.append(sums.assign(depth=depth, name=pd.Series(labels, index=sums.index, dtype=object)))
    result = pd.concat(parts).sort_values(["mode", "depth", "total_ns"], ascending=[True, True, False], kind="stable")
    result["ratio"] = result["total_ns"].astype("Float64") / (total_time(trace, request) or pd.NA)
    return result[["depth", "name", "calls", "total_ns", "ratio"]].reset_index(drop=True)


def _finish(table: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    mode_weight = table["name"].map({name: -number for number, name in enumerate(MODES)})
    depth = table["depth"].to_numpy(np.int64)
    weight = np.where(depth == 0, mode_weight.fillna(0).to_numpy(np.int64), table["total_ns"].to_numpy(np.int64))
    return table.iloc[trees.preorder(trees.parents(depth), weight)].reset_index(drop=True)


_OF_OPERATORS: Final = columns.Share("total_ns", whole=lambda trace, request, table: total_time(trace, request))
COLUMNS: Final = (
    columns.DEPTH,
    replace(columns.NAME, description="mode or direction"),
    columns.CALLS,
    columns.duration("total_ns", "Total", per_step=True),
    replace(columns.RATIO, merge=_OF_OPERATORS, description="share of the total time of the operators"),
)

VIEW = View(
    name="fluid_memcpy",
    title="Memcpy Summary",
    description="asynchronous and synchronous copies by direction, inside and outside operators",
    table=table,
    columns=COLUMNS,
    order="total_ns",
    explain_empty=lambda trace: message("no copies to, from or on a device were recorded"),
    group=GROUP,
    page=False,
    reduction=MergedRows(finish=_finish),
)
