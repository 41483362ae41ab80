"""The sentences a hurried reader needs. Each says only what a table of the report says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pandas as pd

from perfkit_core.language import in_english, say
from perfkit_core.language.units import format_duration, format_ratio

_MANY: Final = 10
"""From this many steps on, the spread is told without the lowest and highest tenth."""


_SAID: Final = 0.01
"""A share below this is left to the table."""
_WORDS: Final = {
    "device_compute": in_english("computation on devices"),
    "compute": in_english("in operators"),
    "exposed_communication": in_english("communication that nothing hides"),
    "exposed_copy": in_english("copies that nothing hides"),
    "input_wait": in_english("waiting for input"),
    "launch_and_host": in_english("launching and other host work while devices have nothing to do"),
    "framework": in_english("host work outside operators"),
    "idle": in_english("nothing that was recorded"),
}
"""What the categories of the view partition are, in a sentence."""


def headline(tables: Mapping[str, pd.DataFrame]) -> tuple[str, ...]:
    """Sentences from the tables of the views steps, partition, model and device; none where they are empty or missing.

    Shares are of the step time: without steps there is nothing that they would be shares of.
    """
    steps = tuple(_steps(tables.get("steps")))
    if not steps:
        return ()
    parts = tuple(_parts(tables.get("partition")))
    waits = any(say(_WORDS["input_wait"]) in sentence for sentence in parts)
    loading = () if waits else _data_loading(tables.get("model"))
    return (*steps, *parts, *loading, *_devices(tables.get("device")))


def _steps(table: pd.DataFrame | None) -> Iterator[str]:
    if table is None or table.empty:
        return
    times = table["dur_ns"].astype("float64")
    if len(times) == 1:
        yield say("The one recorded step took {time}.", time=format_duration(float(times.iloc[0])))
        return
    known = {
        "median": format_duration(float(times.median())),
        "count": len(times),
        "most": format_duration(float(times.max())),
    }
    if len(times) < _MANY:
        text = in_english("Median step time {median} over {count} steps, from {least} to {most}.")
        yield say(text, least=format_duration(float(times.min())), **known)
        return
    low, high = format_duration(float(times.quantile(0.1))), format_duration(float(times.quantile(0.9)))
    text = in_english(
        "Median step time {median} over {count} steps; eight in ten took {low} to {high}, the slowest {most}."
    )
    yield say(text, low=low, high=high, **known)


def _parts(table: pd.DataFrame | None) -> Iterator[str]:
    """The partition of the steps, the largest part first."""
    if table is None or table.empty:
        return
    known = table[(table["ratio"] >= _SAID).fillna(False)].sort_values("ratio", ascending=False, kind="stable")
    pairs = zip(known["category"], known["ratio"], strict=True)
    said = [
        say("{share} is {what}", share=format_ratio(share), what=say(_WORDS.get(category, category)))
        for category, share in pairs
    ]
    if said:
        yield say("Of the step time {parts}.", parts=say(", ").join(said))


def _data_loading(table: pd.DataFrame | None) -> Iterator[str]:
    if table is None or table.empty or "step" not in set(table["phase"]):
        return
    for share in table.loc[table["phase"] == "dataloader", "cpu_ratio"].dropna():
        yield say("Data loading takes {share} of the step time.", share=format_ratio(share))


def _devices(table: pd.DataFrame | None) -> Iterator[str]:
    """How busy devices are: in steps only, and not to be taken for computation."""
    if table is None or table.empty:
        return
    busy = table[table["busy_ns"].notna() & table["busy_in_steps_ratio"].notna()]
    shares = busy["busy_in_steps_ratio"]
    if len(busy) == 1:
        yield say(
            "{device} is busy in steps {share} of the time, communication included.",
            device=busy["device"].iloc[0],
            share=format_ratio(shares.iloc[0]),
        )
    elif len(busy):
        least, most = format_ratio(shares.min()), format_ratio(shares.max())
        yield say(
            "The {count} devices are busy in steps {share} of the time, communication included.",
            count=len(busy),
            share=least if least == most else say("{low} to {high}", low=least, high=most),
        )
