"""The sentences a hurried reader needs. Each says only what a table of the report says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pandas as pd

from perfkit_core.language.messages import Message, mark, message
from perfkit_core.language.units import format_ratio

_MANY: Final = 10
"""From this many steps on, the spread is told without the lowest and highest tenth."""
_SAID: Final = 0.01
"""A share below this is left to the table."""
_WORDS: Final = {
    "device_compute": mark("computation on devices"),
    "compute": mark("in operators"),
    "exposed_communication": mark("communication that nothing hides"),
    "exposed_copy": mark("copies that nothing hides"),
    "input_wait": mark("waiting for input"),
    "launch_and_host": mark("launching and other host work while devices have nothing to do"),
    "framework": mark("host work outside operators"),
    "idle": mark("nothing that was recorded"),
}
"""What the categories of the view partition are, in a sentence."""


def headline(tables: Mapping[str, pd.DataFrame]) -> tuple[Message, ...]:
    """Return sentences from the tables of the views steps, partition, model and device; none where they are missing.

    Shares are of the step time: without steps there is nothing that they would be shares of.
    """
    steps = tuple(_steps(tables.get("steps")))
    if not steps:
        return ()
    parts = _parts(tables.get("partition"))
    # what is waited for input is part of the time of data loading: one of the two is enough
    loading = () if "input_wait" in parts else _data_loading(tables.get("model"))
    return (*steps, *_of_step(parts), *loading, *_devices(tables.get("device")))


def _steps(table: pd.DataFrame | None) -> Iterator[Message]:
    if table is None or table.empty:
        return
    times = table["dur_ns"].astype("float64")
    if len(times) == 1:
        yield message("The one recorded step took {time:ns}.", time=times.iloc[0])
    elif len(times) < _MANY:
        yield message(
            "Median step time {median:ns} over {count} steps, from {least:ns} to {most:ns}.",
            median=times.median(),
            count=len(times),
            least=times.min(),
            most=times.max(),
        )
    else:
        yield message(
            "Median step time {median:ns} over {count} steps; eight in ten took {low:ns} to {high:ns}, the slowest "
            "{most:ns}.",
            median=times.median(),
            count=len(times),
            low=times.quantile(0.1),
            high=times.quantile(0.9),
            most=times.max(),
        )


def _parts(table: pd.DataFrame | None) -> dict[str, float]:
    """Return the categories of the step time and their shares, the largest first, without those too small to tell."""
    if table is None or table.empty:
        return {}
    told = table[(table["ratio"] >= _SAID).fillna(False)].sort_values("ratio", ascending=False, kind="stable")
    return dict(zip(told["category"], told["ratio"], strict=True))


def _of_step(parts: Mapping[str, float]) -> Iterator[Message]:
    if parts:
        told = [
            message("{share:ratio} is {what}", share=share, what=message(_WORDS.get(category, category)))
            for category, share in parts.items()
        ]
        yield message("Of the step time {parts:list}.", parts=told)


def _data_loading(table: pd.DataFrame | None) -> Iterator[Message]:
    if table is None or table.empty or "step" not in set(table["phase"]):
        return
    for share in table.loc[table["phase"] == "dataloader", "cpu_ratio"].dropna():
        yield message("Data loading takes {share:ratio} of the step time.", share=share)


def _devices(table: pd.DataFrame | None) -> Iterator[Message]:
    """How busy devices are: in steps only, and not to be taken for computation."""
    if table is None or table.empty:
        return
    busy = table[table["busy_ns"].notna() & table["busy_in_steps_ratio"].notna()]
    shares = busy["busy_in_steps_ratio"]
    if len(busy) == 1:
        yield message(
            "{device} is busy in steps {share:ratio} of the time, communication included.",
            device=busy["device"].iloc[0],
            share=shares.iloc[0],
        )
    elif len(busy):
        least, most = format_ratio(shares.min()), format_ratio(shares.max())
        yield message(
            "The {count} devices are busy in steps {share} of the time, communication included.",
            count=len(busy),
            share=least if least == most else message("{low} to {high}", low=least, high=most),
        )
