"""The report of Paddle 1.x over ranks. Threads and instances are numbered within a rank: split by them, ranks are
listed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.analyses.fluid import events, head, memcpy, overhead
from perfkit_core.analyses.merging import Merged, listed_by_rank, merged
from perfkit_core.analyses.merging_rows import parents, stacked
from perfkit_core.analyses.merging_shares import Share
from perfkit_core.analyses.over_ranks import wholes
from perfkit_core.analyses.tables import ratio
from perfkit_core.language.columns import OVERHEAD
from perfkit_core.plugins.contracts import Reduction, ViewRequest
from perfkit_core.trees import preorder

_EVENTS: Final = Merged(
    ("calls", "total_ns", "cpu_ns", "device_ns", "min_ns", "max_ns", "avg_ns"),
    {
        "cpu_ratio": Share("cpu_ns", column="total_ns"),
        "device_ratio": Share("device_ns", column="total_ns"),
        "ratio": Share("total_ns"),
    },
    weight=("total_ns",),
)


def unless_split(together: Reduction, apart: Reduction) -> Reduction:
    """``together``, and ``apart`` where rows are split by threads or instances."""
    return Reduction(
        lambda trace, request: (apart if request.by else together).reduce(trace, request),
        lambda partials, request: (apart if request.by else together).merge(partials, request),
    )


def said_once(partials: Sequence[Any], request: ViewRequest) -> pd.DataFrame:
    """What ranks say alike, once; settings in the order of the first rank."""
    rows = stacked(partials).drop_duplicates()
    place = {name: number for number, name in enumerate(dict.fromkeys(rows["setting"]))}
    return rows.sort_values("setting", key=lambda names: names.map(place), kind="stable", ignore_index=True)


def in_overhead_order(table: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    """The rows in the order of the view, with their share of the first."""
    place = {name: number for number, name in enumerate(OVERHEAD)}
    table = table.sort_values("name", key=lambda names: names.map(place), kind="stable", ignore_index=True)
    return table.assign(ratio=ratio(table["total_ns"], int(table["total_ns"].iloc[0])))


def in_order_of_modes(table: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    """Asynchronous copies before synchronous ones, below them the directions, the longest first."""
    place = table["name"].map({name: -number for number, name in enumerate(memcpy.MODES)})
    depth = table["depth"].to_numpy(np.int64)
    weight = np.where(depth == 0, place.fillna(0).to_numpy(np.int64), table["total_ns"].to_numpy(np.int64))
    return table.iloc[preorder(parents(depth), weight)].reset_index(drop=True)


REDUCTIONS: Final = {
    "fluid_head": unless_split(Reduction(head.table, said_once), listed_by_rank(head.table)),
    "fluid_overhead": merged(
        overhead.table,
        Merged(("total_ns", "cpu_ns", "device_ns"), {"ratio": Share("total_ns")}, finish=in_overhead_order),
    ),
    "fluid_memcpy": merged(
        memcpy.table,
        Merged(("calls", "total_ns"), {"ratio": Share("total_ns", whole=wholes.total_time)}, finish=in_order_of_modes),
    ),
    "fluid_events": unless_split(merged(events.table, _EVENTS), listed_by_rank(events.table)),
}
