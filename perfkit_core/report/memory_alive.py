"""What was alive when most memory was allocated, in a sentence a device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pandas as pd

from perfkit_core.language import say
from perfkit_core.language.columns import worded
from perfkit_core.language.units import format_ratio

DEVICES: Final = 4
"""Devices that get a sentence, those with most memory first; the table has all."""
NAMED: Final = 3
_SAID: Final = 0.01
"""A share below this is left to the table."""


def sentences(peak: pd.DataFrame) -> Iterator[str]:
    """From the table of the view memory_peak."""
    if peak.empty:
        return
    places = peak.groupby(["rank", "device"], dropna=False, sort=False)["bytes"].sum()
    for place in places.sort_values(ascending=False, kind="stable").head(DEVICES).index:
        rank, device = place
        mine = peak["rank"].isna() if pd.isna(rank) else peak["rank"] == rank
        yield from _sentence(device, rank, peak[mine.fillna(False) & (peak["device"] == device)], len(places))


def _sentence(device: str, rank: Any, rows: pd.DataFrame, places: int) -> Iterator[str]:
    largest = rows[(rows["ratio"] >= _SAID).fillna(False)].nlargest(NAMED, "ratio", keep="first")
    names = [
        f"{worded(name)} {format_ratio(share)}"
        for name, share in zip(largest["name"], largest["ratio"].tolist(), strict=True)
    ]
    if not names:
        return
    told = say(", ").join(names)
    if pd.isna(rank) or places == 1:
        yield say("Alive at the peak of {device}: {names}.", device=device, names=told)
    else:
        yield say("Alive at the peak of rank {rank}, {device}: {names}.", rank=rank, device=device, names=told)
