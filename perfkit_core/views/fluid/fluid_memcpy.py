"""How much time did copies to, from and on the device take, by direction, asynchronous and synchronous ones apart?

Which of the two a copy was says the name of the call that launched it, or of the event that the framework recorded
around that call (``cudaMemcpyAsync``, ``GpuMemcpySync:GPU->CPU``). Copies outside of operators count too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms import nesting, regex
from perfkit_core.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.algorithms.trees import preorder
from perfkit_core.language.messages import message
from perfkit_core.model.columns import CALLS, DEPTH, NAME, RATIO, Share, duration
from perfkit_core.model.schema import MEMCPY, RUNTIME, SYNC
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.views.fluid import scope
from perfkit_core.views.fluid.fluid_overhead import total_time
from perfkit_core.views.merging import parents
from perfkit_core.views.select import selected

MODES: Final = ("GpuMemcpyAsync", "GpuMemcpySync", "GpuMemcpy (launch not recorded)")
_ASYNC, _SYNC, _UNKNOWN = range(3)
_SAYS_WHICH: Final = "(?i)memcpy_?a?sync"


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Modes, below them the directions; see :data:`COLUMNS`. The ratio is NA where no operators were recorded."""
    rows = np.flatnonzero(selected(trace, request) & trace.rows("kind", MEMCPY))
    codes = trace.codes("copy_kind")
    ways = np.array([*map(scope.direction, codes.values), scope.direction("")], dtype=object)
    copies = pd.DataFrame({"mode": _modes(trace, rows), "name": ways[codes.codes[rows]],
                           "ns": trace.ints("dur_ns")[rows]})  # fmt: skip
    parts = [_sums(copies, ["mode"], 0), _sums(copies, ["mode", "name"], 1)]
    result = pd.concat(parts).sort_values(["mode", "depth", "total_ns"], ascending=[True, True, False], kind="stable")
    result["ratio"] = result["total_ns"].astype("Float64") / (total_time(trace, request) or pd.NA)
    return result[["depth", "name", "calls", "total_ns", "ratio"]].reset_index(drop=True)


def _sums(copies: pd.DataFrame, keys: list[str], depth: int) -> pd.DataFrame:
    found = copies.groupby(keys)["ns"].agg(calls="count", total_ns="sum").reset_index()
    names = found["name"] if depth else [MODES[mode] for mode in found["mode"]]
    return found.assign(depth=depth, name=pd.Series(names, index=found.index, dtype=object))


def _modes(trace: Trace, rows: IntArray) -> IntArray:
    """For each copy: asynchronous, synchronous or unknown."""
    name, launched_by = trace.codes("name"), trace.ints("launched_by")[rows]
    says = name.lookup(regex.matches(name.values, _SAYS_WHICH), False)
    telling = nesting.outermost(trace.ints("parent"), says & trace.host)[launched_by]
    call = np.where(trace.rows("kind", RUNTIME, SYNC)[launched_by], launched_by, NO_ROW)
    by = np.where(launched_by == NO_ROW, NO_ROW, np.where(telling >= 0, telling, call))
    asynchronous = name.lookup(regex.matches(name.values, "(?i)async"), False)
    return np.where(by == NO_ROW, _UNKNOWN, np.where(asynchronous[by], _ASYNC, _SYNC))


def _operators_ns(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int:
    return total_time(trace, request)


def _in_order_of_modes(table: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    """Asynchronous copies before synchronous ones, below them the directions, the longest first."""
    place = table["name"].map({name: -number for number, name in enumerate(MODES)})
    depth = table["depth"].to_numpy(np.int64)
    weight = np.where(depth == 0, place.fillna(0).to_numpy(np.int64), table["total_ns"].to_numpy(np.int64))
    return table.iloc[preorder(parents(depth), weight)].reset_index(drop=True)


COLUMNS: Final = (
    DEPTH,
    replace(NAME, description="mode, below it the directions"),
    CALLS,
    duration("total_ns", "Total", per_step=True),
    replace(RATIO, merge=Share("total_ns", whole=_operators_ns), description="of the total time of the operators"),
)

VIEW = View(
    name="fluid_memcpy",
    title="Memcpy Summary",
    description="copies by direction, asynchronous and synchronous ones apart, outside of operators too",
    table=table,
    columns=COLUMNS,
    order="total_ns",
    explain_empty=lambda trace: message("no copies to, from or on a device were recorded"),
    group=scope.GROUP,
    page=False,
    reduction=MergedRows(finish=_in_order_of_modes),
)
