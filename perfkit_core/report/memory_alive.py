"""What was alive when most memory was allocated, in a sentence a device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pandas as pd

from perfkit_core.language import Message, message
from perfkit_core.language.columns import worded

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
