"""The sentences a hurried reader needs. Each says only what a table of the report says."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

import pandas as pd

_MANY: Final = 10
"""From this many steps on, the spread is told without the lowest and highest tenth."""


_SAID: Final = 0.01
"""A share below this is left to the table."""
_WORDS: Final = {
    "device_compute": "computation on devices",
    "compute": "in operators",
    "exposed_communication": "communication that nothing hides",
    "exposed_copy": "copies that nothing hides",
    "input_wait": "waiting for input",
    "launch_and_host": "launching and other host work while devices have nothing to do",
    "framework": "host work outside operators",
    "idle": "nothing that was recorded",
}
"""What the categories of the view partition are, in a sentence."""
_COUNTED: Final = "communication included"


def headline(tables: Mapping[str, pd.DataFrame]) -> tuple[str, ...]:
    """Sentences from the tables of the views steps, partition, model and device; none where they are empty or missing.

    Shares are of the step time: without steps there is nothing that they would be shares of.
    """
    steps = tuple(_steps(tables.get("steps")))
    if not steps:
        return ()
    parts = tuple(_parts(tables.get("partition")))
    waits = any(_WORDS["input_wait"] in sentence for sentence in parts)
    loading = () if waits else _data_loading(tables.get("model"))
    return (*steps, *parts, *loading, *_devices(tables.get("device")))


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


def _parts(table: pd.DataFrame | None) -> Iterator[str]:
    """The partition of the steps, the largest part first."""
    if table is None or table.empty:
        return
    known = table[(table["ratio"] >= _SAID).fillna(False)].sort_values("ratio", ascending=False, kind="stable")
    pairs = zip(known["category"], known["ratio"], strict=True)
    said = [f"{share:.1%} is {_WORDS.get(category, category)}" for category, share in pairs]
    if said:
        yield f"Of the step time {', '.join(said)}."


def _data_loading(table: pd.DataFrame | None) -> Iterator[str]:
    if table is None or table.empty or "step" not in set(table["phase"]):
        return
    for share in table.loc[table["phase"] == "dataloader", "cpu_ratio"].dropna():
        yield f"Data loading takes {share:.1%} of the step time."


def _devices(table: pd.DataFrame | None) -> Iterator[str]:
    """How busy devices are: in steps only, and not to be taken for computation."""
    if table is None or table.empty:
        return
    busy = table[table["busy_ns"].notna() & table["busy_in_steps_ratio"].notna()]
    shares = busy["busy_in_steps_ratio"]
    if len(busy) == 1:
        yield f"{busy['device'].iloc[0]} is busy in steps {shares.iloc[0]:.1%} of the time, {_COUNTED}."
    elif len(busy):
        least, most = f"{shares.min():.1%}", f"{shares.max():.1%}"
        spread = least if least == most else f"{least} to {most}"
        yield f"The {len(busy)} devices are busy in steps {spread} of the time, {_COUNTED}."
