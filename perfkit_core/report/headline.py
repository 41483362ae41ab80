"""The sentences a hurried reader needs. Each says only what a table of the report says."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

import pandas as pd

_MANY: Final = 10
"""From this many steps on, the spread is told without the lowest and highest tenth."""


def headline(tables: Mapping[str, pd.DataFrame]) -> tuple[str, ...]:
    """Sentences from the tables of the views steps, model and device; none where they are empty or missing."""
    return (*_steps(tables.get("steps")), *_data_loading(tables.get("model")), *_devices(tables.get("device")))


def duration(ns: float) -> str:
    """A duration in words, three digits: ``12.3 ms``."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(ns) >= size:
            value = ns / size
            return f"{value:.{max(0, 2 - int(math.log10(abs(value))))}f} {unit}"
    return f"{ns:.0f} ns"


def _steps(table: pd.DataFrame | None) -> Iterator[str]:
    if table is None or table.empty:
        return
    times = table["dur_ns"].astype("float64")
    if len(times) == 1:
        yield f"The one recorded step took {duration(float(times.iloc[0]))}."
        return
    middle = f"Median step time {duration(float(times.median()))} over {len(times)} steps"
    if len(times) < _MANY:
        yield f"{middle}, from {duration(float(times.min()))} to {duration(float(times.max()))}."
    else:
        low, high = duration(float(times.quantile(0.1))), duration(float(times.quantile(0.9)))
        yield f"{middle}; eight in ten took {low} to {high}, the slowest {duration(float(times.max()))}."


def _data_loading(table: pd.DataFrame | None) -> Iterator[str]:
    if table is None or table.empty or "step" not in set(table["phase"]):
        return
    for share in table.loc[table["phase"] == "dataloader", "cpu_ratio"].dropna():
        yield f"Data loading takes {share:.1%} of the step time."


def _devices(table: pd.DataFrame | None) -> Iterator[str]:
    if table is None or table.empty:
        return
    devices = table[table["busy_ns"].notna()]
    shares = devices["busy_in_steps_ratio"]
    if len(devices) == 1:
        yield f"{devices['device'].iloc[0]} runs kernels {shares.iloc[0]:.1%} of the time."
    elif len(devices):
        yield f"The {len(devices)} devices run kernels {shares.min():.1%} to {shares.max():.1%} of the time."
