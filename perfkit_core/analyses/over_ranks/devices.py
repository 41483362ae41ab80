"""Views of devices over ranks: kernels and copies of one kind are added, wherever they ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pandas as pd

from perfkit_core.analyses.devices import device, kernels, memcpy
from perfkit_core.analyses.merging import Merged, merge_tables, merged
from perfkit_core.analyses.merging_rows import stacked
from perfkit_core.analyses.merging_shares import Share
from perfkit_core.plugins.contracts import Reduction, ViewRequest

_TIMES: Final = tuple(f"{one}_device_ns" for one in ("total", "avg", "min", "max"))
_COPIES: Final = Merged(("calls", "bytes", *_TIMES, memcpy.TOLD_NS))
_BUSY: Final = Merged(
    ("kernels", "busy_ns", "span_ns"),
    {"utilisation_ratio": Share("busy_ns", column="span_ns"), "busy_in_steps_ratio": Share(column="span_ns")},
    described=("product",),
)


def copies(partials: Sequence[Any], request: ViewRequest) -> pd.DataFrame:
    """Copies added, then divided by the time of those whose size is known."""
    return memcpy.with_speed(merge_tables(partials, _COPIES, {}))


def devices(partials: Sequence[Any], request: ViewRequest) -> pd.DataFrame:
    """Devices of one name added; of the host what the first rank that tells has measured."""
    rows = stacked(partials)
    of_device = rows["span_ns"].notna()
    host = rows[~of_device].drop_duplicates("device")
    added = merge_tables([rows[of_device].reset_index(drop=True)], _BUSY, {}).sort_values("device", kind="stable")
    return stacked([host, added])


REDUCTIONS: Final = {
    "kernels": merged(kernels.table, Merged(("calls", *_TIMES), {"ratio": Share("total_device_ns")})),
    "memcpy": Reduction(memcpy.measured, copies),
    "device": Reduction(device.table, devices),
}
