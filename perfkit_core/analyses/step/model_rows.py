"""Rows and columns of the table of phases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from perfkit_core.analyses.tables import rounded_division
from perfkit_core.trace import IntArray

_FOUR = ("total", "avg", "min", "max")
_INTEGERS = ("calls", *(f"{one}_{side}_ns" for side in ("cpu", "device") for one in _FOUR))
_RATIOS = ("cpu_ratio", "device_ratio")
COLUMNS = ("phase", *_INTEGERS[:5], "cpu_ratio", *_INTEGERS[5:], "device_ratio")


def row(
    phase: str,
    cpu: IntArray | None = None,
    device: IntArray | None = None,
    device_total: int | None = None,
    cpu_total: int | None = None,
) -> dict[str, Any]:
    """A row from the host and device times of each call; totals that are not their sum, or without calls, by
    themselves. The average is the total over the calls."""
    calls = None if cpu is None else len(cpu)
    return {"phase": phase, "calls": calls, **_four("cpu", cpu, cpu_total), **_four("device", device, device_total)}


def model_table(rows: Sequence[dict[str, Any]], steps_cpu_ns: int, steps_device_ns: int) -> pd.DataFrame:
    """The table; ratios are to the host and device time of the steps, null where a row has no such time."""
    result = pd.DataFrame(list(rows), columns=["phase", *_INTEGERS]).astype(dict.fromkeys(_INTEGERS, "Int64"))
    for side, whole in (("cpu", steps_cpu_ns), ("device", steps_device_ns)):
        part = result[f"total_{side}_ns"].astype("Float64")
        result[f"{side}_ratio"] = part / whole if whole else part * 0
    return result[list(COLUMNS)]


def _four(side: str, times: IntArray | None, total: int | None) -> dict[str, int | None]:
    if times is None:
        return {f"{one}_{side}_ns": total if one == "total" else None for one in _FOUR}
    total = int(times.sum()) if total is None else total
    average = int(rounded_division(total, len(times)))
    return dict(
        zip((f"{one}_{side}_ns" for one in _FOUR), (total, average, int(times.min()), int(times.max())), strict=True)
    )
