"""The ranks that come last at collectives, and what their devices do while other ranks wait for them.

A wait for a collective ends when its last rank arrives. From the arrival of the first rank to that of the last one, the
account of the last rank says what holds all others. Times of a rank are cut on its own clock, so that only the arrivals
depend on the alignment of clocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import intervals
from perfkit_core.base.algorithms.arrays import NO_ROW
from perfkit_core.base.language.messages import Message, mark, message
from perfkit_core.causes.account import device_segments
from perfkit_core.causes.labels import Labels
from perfkit_core.causes.segments import COMMUNICATION, WORDS, in_windows
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.communication import instances, stragglers
from perfkit_core.views.select import ranks

_MATTERS: Final = 0.01
"""Waits for the last ranks are reported if they take at least this share of the steps of all ranks."""
_LARGE: Final = 0.25
"""Minimum share of all these waits of a rank that is named."""
_MOST: Final = 3
_NAMED, _MOSTLY = 0.25, 0.75
"""Minimum share of the delay of a cause that is named, and share of the delay that must have been recorded."""
_WAIT: Final = mark("Other ranks wait {time:ns} for rank {rank} (number of collectives: {count}, of ranks: {others})")
_HELD: Final = mark("{wait}. Until it arrives, its largest cause is {cause} ({share:ratio} of that time).")
_UNNAMED: Final = mark("{wait}. Until it arrives, no single cause takes a quarter of its time.")
_UNRECORDED: Final = mark(
    "{wait}. Why is unknown: it has no events for {unrecorded:ratio} of the time until it arrives."
)


def last_ranks(trace: Trace) -> Iterator[Message]:
    """Yield a sentence for each rank for which others wait long. ``trace`` has all ranks. Collectives whose waits clock
    errors could explain to more than half are left out."""
    if len(ranks(trace)) < 2:
        return
    partials = instances.reduce_each(trace, ViewRequest())
    calls = stragglers.arrivals(partials)
    waits = calls.groupby("meeting")[["wait_ns", "doubt_ns"]].sum()
    last = calls[calls["last"] & calls["chosen"].astype(bool)]
    last = last.assign(caused_ns=last["meeting"].map(waits["wait_ns"]), doubt_ns=last["meeting"].map(waits["doubt_ns"]))
    last = last[2 * last["doubt_ns"] <= last["caused_ns"]]
    steps_ns = int(instances.together(partials, "steps")["dur_ns"].sum())
    caused = last.groupby("rank")["caused_ns"].sum().sort_values(ascending=False, kind="stable")
    total_ns = int(caused.sum())
    if not total_ns or total_ns < _MATTERS * steps_ns:
        return
    for rank, time_ns in caused.head(_MOST).items():
        if time_ns >= _LARGE * total_ns:
            meetings = last[last["rank"] == rank]
            waiting = calls[calls["meeting"].isin(meetings["meeting"]) & (calls["rank"] != rank)]
            wait = message(_WAIT, time=int(time_ns), rank=rank, count=len(meetings), others=waiting["rank"].nunique())
            cause, share, recorded = _cause(trace, int(str(rank)), meetings)
            text = _UNRECORDED if recorded < _MOSTLY else _HELD if share >= _NAMED else _UNNAMED
            yield message(text, wait=wait, cause=cause, share=share, unrecorded=1 - recorded)


def _cause(trace: Trace, rank: int, meetings: pd.DataFrame) -> tuple[str, float, float]:
    """Return the largest cause in the account of a rank until its arrivals, its share of these times, and the share of
    these times that was recorded."""
    work = np.flatnonzero(trace.rows("kind", *schema.DEVICE_WORK) & (trace.ints("rank") == rank))
    devices = trace.codes("device").codes[work]
    if not (devices >= 0).any():
        return "", 0.0, 0.0
    device = int(np.bincount(devices[devices >= 0], trace.ints("dur_ns")[work][devices >= 0]).argmax())
    segments, labels = device_segments(trace, rank, device), Labels(trace)
    end = meetings["start_ns"].to_numpy(np.int64)
    begin, end = intervals.union(end - meetings["skew_ns"].to_numpy(np.int64), end)
    _, at, width = in_windows(segments, begin, end)
    cause, part, _, _ = labels.of(segments)
    waits = segments.word == WORDS.index(COMMUNICATION)  # it waits itself
    whole_ns = max(int((end - begin).sum()), 1)
    largest = ("", 0.0)
    for codes in (np.where(part == NO_ROW, cause, part), cause):  # events and kernels, else what they belong to
        code = np.where(waits, NO_ROW, codes)[at]
        time_ns = np.bincount(code[code != NO_ROW], width[code != NO_ROW], minlength=1)
        if largest[1] < _NAMED:
            largest = labels.texts[int(time_ns.argmax())], float(time_ns.max() / whole_ns)
    return *largest, int(width.sum()) / whole_ns
