"""Views of operators, labels and code over ranks: rows of one name are added, trees merged by their paths."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.analyses.merging import Merged, merged
from perfkit_core.analyses.merging_shares import Share
from perfkit_core.analyses.operator import (
    families,
    memory_manipulation,
    operator_kinds,
    operator_tree,
    operators,
    spans,
    user_annotations,
)
from perfkit_core.analyses.over_ranks import wholes
from perfkit_core.analyses.source import code
from perfkit_core.plugins.contracts import ViewRequest

_TIMES: Final = tuple(f"{one}_{side}_ns" for side in ("cpu", "device") for one in ("total", "avg", "min", "max"))
_TREE: Final = ("depth", "name", "kind", "calls", *_TIMES, "cpu_ratio", "device_ratio", "flops")

_SHARES: Final = {
    "self_cpu_ratio": Share("self_cpu_ns", whole=wholes.of_self_times),
    "total_cpu_ratio": Share("total_cpu_ns", whole=wholes.of_operators),
    "self_device_ratio": Share("self_device_ns"),
}
_LABELS: Final = tuple(name for name in spans.MEASURES if name not in ("self_cpu_ratio", "self_device_ratio"))
_HOST_SHARE: Final = Share("total_cpu_ns", whole=wholes.host_time_of_steps)
_DEVICE_SHARE: Final = Share("total_device_ns", whole=wholes.device_work_of_steps)
_TREE_SHARES: Final = {
    "cpu_ratio": Share("total_cpu_ns", above=True),
    "device_ratio": Share("total_device_ns", above=True),
}
_KIND_SHARES: Final = {"self_cpu_ratio": Share("self_cpu_ns"), "self_device_ratio": Share("self_device_ns")}
_FAMILY_SHARES: Final = {"self_cpu_ratio": Share("self_cpu_ns"), "device_ratio": Share("device_ns")}
_CODE_SHARES: Final = {
    "total_cpu_ratio": Share("total_cpu_ns"),
    "self_cpu_ratio": Share("self_cpu_ns", of="total_cpu_ns"),
}


def roots_of_a_group(table: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    """Natively the shares of the roots are of those with the same groupings."""
    groupings = [str(name) for name in table.columns if name not in _TREE]
    if not (request.native and groupings):
        return table
    root = table["depth"] == 0
    keys = [table[name].astype("string").fillna("") for name in groupings]
    for side in ("cpu", "device"):
        total = table[f"total_{side}_ns"].astype("Float64").fillna(0).to_numpy(np.float64)
        whole = pd.Series(np.where(root, total, 0)).groupby(keys).transform("sum").to_numpy()
        share = np.where(whole == 0, 0, total / np.where(whole == 0, 1, whole))
        known = table[f"{side}_ratio"].notna()
        table[f"{side}_ratio"] = np.where(root & known, share, table[f"{side}_ratio"])
    return table


REDUCTIONS: Final = {
    "operators": merged(operators.table, Merged(spans.MEASURES, _SHARES)),
    "operator_tree": merged(
        operator_tree.table,
        Merged(("calls", *_TIMES, "flops"), _TREE_SHARES, weight=("total_cpu_ns", "total_device_ns"),
               finish=roots_of_a_group),
    ),
    "operator_kinds": merged(
        operator_kinds.table,
        Merged(("calls", "self_cpu_ns", "total_cpu_ns", "self_device_ns", "total_device_ns"), _KIND_SHARES,
               weight=("self_cpu_ns",)),
    ),
    "families": merged(
        families.table,
        Merged(families.SUMS, _FAMILY_SHARES, weight=("device_ns", "self_cpu_ns"),
               finish=lambda table, request: table if "depth" in table else families.in_order(table)),
    ),
    "annotations": merged(
        user_annotations.table,
        Merged(_LABELS, {"total_cpu_ratio": _HOST_SHARE, "total_device_ratio": _DEVICE_SHARE}),
    ),
    "memory_manipulation": merged(
        memory_manipulation.table,
        Merged(("calls", *_TIMES), {"cpu_ratio": _HOST_SHARE, "device_ratio": _DEVICE_SHARE}),
    ),
    "code": merged(code.table, Merged(code.PER_STEP, _CODE_SHARES, weight=("total_cpu_ns",))),
}  # fmt: skip
