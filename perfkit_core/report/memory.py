"""What was alive when most memory was allocated, in a sentence a device.

Memory over time, as a picture can show it: the highest level of each device in each of some hundred stretches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.language.messages import Message, message, say, worded
from perfkit_core.model.columns import POSITION, Column, size
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.report.model import Chart, Section
from perfkit_core.views.memory import memory_curve

DEVICES: Final = 4
"""Devices that get a sentence, those with most memory first; the table has all."""
NAMED: Final = 3
_SAID: Final = 0.01
"""A share below this is left to the table."""


def sentences(peak: pd.DataFrame) -> Iterator[Message]:
    """From the table of the view memory_peak."""
    if peak.empty:
        return
    places = peak.groupby(["rank", "device"], dropna=False, sort=False)["bytes"].sum()
    for place in places.sort_values(ascending=False, kind="stable").head(DEVICES).index:
        rank, device = place
        mine = peak["rank"].isna() if pd.isna(rank) else peak["rank"] == rank
        yield from _sentence(device, rank, peak[mine.fillna(False) & (peak["device"] == device)], len(places))


def _sentence(device: str, rank: Any, rows: pd.DataFrame, places: int) -> Iterator[Message]:
    largest = rows[(rows["ratio"] >= _SAID).fillna(False)].nlargest(NAMED, "ratio", keep="first")
    names = [
        message("{name} {share:ratio}", name=worded(name), share=share)
        for name, share in zip(largest["name"], largest["ratio"].tolist(), strict=True)
    ]
    if not names:
        return
    if pd.isna(rank) or places == 1:
        yield message("Alive at the peak of {device}: {names:list}.", device=device, names=names)
    else:
        yield message(
            "Alive at the peak of rank {rank}, {device}: {names:list}.", rank=rank, device=device, names=names
        )


STRETCHES: Final = 400
"""Points of the picture."""


def section(trace: Trace) -> Section:
    """Columns time_ns (the end of the stretch, since the first memory event) and a column of bytes for each device (and
    rank, where there are several): the highest level in the stretch, so that no peak is lost."""
    table = memory_curve.table(trace, ViewRequest())
    pools = _pools(table)
    levels = {"time_ns": _ends(table)} | {f"{name}_bytes": _highest(one, table) for name, one in pools.items()}
    found = pd.DataFrame(levels) if pools else pd.DataFrame(columns=["time_ns"])
    note = say(
        "The highest level in each of {count} stretches of time; every event: perfkit summary --view memory_curve.",
        count=STRETCHES,
    )
    chart = Chart("line", "time_ns", tuple(found.columns[1:]))
    columns = (
        Column("time_ns", "Time", "ns", POSITION),
        *(size(f"{name}_bytes", name, quantity="level", proper=True) for name in pools),
    )
    title, empty = say("Memory over time"), say("no memory events were recorded")
    return Section("memory_curve", title, found, note, empty, 10, chart, columns=columns)


def _pools(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The events of each device, by its name; the level recorded, else the growth since the beginning."""
    several = table["rank"].nunique() > 1
    found = {}
    for (rank, device), one in table.groupby(["rank", "device"], sort=False, dropna=False, observed=True):
        name = f"rank {rank} {device}" if several else str(device)
        known = one["allocated_bytes"].notna().all()
        found[name if known else f"{name} growth"] = one.assign(
            level=one["allocated_bytes"] if known else one["growth_bytes"]
        )
    return found


def _ends(table: pd.DataFrame) -> IntArray:
    last = int(table["time_ns"].max()) if len(table) else 0
    return np.linspace(0, last, STRETCHES + 1)[1:].round().astype(np.int64)


def _highest(one: pd.DataFrame, table: pd.DataFrame) -> IntArray:
    """Of each stretch the highest level, that at its beginning included."""
    time, level = one["time_ns"].to_numpy(np.int64), one["level"].to_numpy(np.int64)
    ends = _ends(table)
    begins = np.append(0, ends[:-1])
    before = level[np.maximum(np.searchsorted(time, begins, side="right") - 1, 0)]
    highest = before.copy()
    inside = np.searchsorted(ends, time)
    np.maximum.at(highest, np.minimum(inside, STRETCHES - 1), level)
    return highest
