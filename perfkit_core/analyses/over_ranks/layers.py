"""The view of layers over ranks: what each rank did in a layer is added, what a layer is, is told by the first rank
that knows it."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.analyses.merging import Merged, merged
from perfkit_core.analyses.merging_rows import parents
from perfkit_core.analyses.merging_shares import Share
from perfkit_core.analyses.module import modules
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.trees import preorder

_SHARES: Final = {
    f"{which}_{side}_ratio": Share(f"{which}_{side}_ns", of=f"total_{side}_ns")
    for which in ("total", "self")
    for side in ("cpu", "device")
}
_DESCRIBED: Final = ("class", "parameters", "self_parameters", "parameter_bytes", "module")


def in_order(table: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    """The costliest layers first, by device time where there is any, and last what is in no layer; groups stay in the
    order in which they come."""
    weight = table["total_device_ns"].fillna(0).to_numpy(np.int64)
    if not weight.any():
        weight = table["total_cpu_ns"].fillna(0).to_numpy(np.int64)
    weight = np.where(table["name"] == modules.NO_MODULE, -1, weight)
    depth = table["depth"].to_numpy(np.int64)
    if request.by:
        weight = np.where(depth == 0, -np.arange(len(table)), weight)
    return table.iloc[preorder(parents(depth), weight)].reset_index(drop=True)


REDUCTIONS: Final = {
    "modules": merged(modules.table, Merged(modules.PER_STEP, _SHARES, described=_DESCRIBED, finish=in_order)),
}
