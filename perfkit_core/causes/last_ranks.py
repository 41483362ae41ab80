"""The ranks that come last at collectives, and what their devices do while other ranks wait for them.

A wait for a collective ends when its last rank arrives. What all ranks do before a collective makes none of them late.
So the account of the last rank since the collective before, or since its first event, is compared with those of the
ranks that wait for it. Times of a rank are cut on its own clock, so that only the arrivals depend on the alignment of
clocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import intervals
from perfkit_core.base.algorithms.arrays import NO_ROW
from perfkit_core.base.language.messages import Message, mark, message
from perfkit_core.causes.account import device_segments
from perfkit_core.causes.host_work import OPERATORS, RANGES, UNRECORDED
from perfkit_core.causes.labels import Labels
from perfkit_core.causes.segments import COMMUNICATION, HOST, WORDS, in_windows
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.side_tables import AWAITED_RANKS
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
_WHOLE: Final = -2  # no code of a text
_WAIT: Final = mark(
    "Other ranks wait {time:ns} in total for rank {rank} (number of collectives: {count}, of ranks: {others})"
)
_AT_LEAST: Final = mark(
    "Other ranks wait at least {time:ns} in total for rank {rank} (number of collectives: {count}, of ranks: {others}; "
    "the recordings of other ranks are missing)"
)
_UNREAD: Final = mark("Rank {rank}, for which others wait, was not read: its recording would show what delays it.")
_HELD: Final = mark("{wait}. Of the time by which it comes later, {share:ratio} is in {cause}.")
_UNNAMED: Final = mark("{wait}. No single cause takes a quarter of the time by which it comes later.")
_KINDS: Final = {
    UNRECORDED: message("host code that was not recorded"),
    OPERATORS: message("operators on the host"),
    RANGES: message("code in ranges, outside of operators"),
}
_UNRECORDED: Final = mark(
    "{wait}. Why is unknown: it has no events for {unrecorded:ratio} of the time until it arrives."
)


def last_ranks(trace: Trace) -> Iterator[Message]:
    """Yield a sentence for each rank for which others wait long, also for ranks that were not read, if devices recorded
    for which rank they wait. ``trace`` has all ranks that were read. Collectives whose waits clock
    errors could explain to more than half are left out."""
    if len(ranks(trace)) < 2 and not len(trace.tables[AWAITED_RANKS]):
        return
    partials = instances.reduce_each(trace, ViewRequest())
    calls = stragglers.arrivals(partials)
    waits = calls.groupby("meeting")[["wait_ns", "doubt_ns"]].sum()
    last = calls[calls["last"] & calls["chosen"].astype(bool)]
    last = last.assign(caused_ns=last["meeting"].map(waits["wait_ns"]), doubt_ns=last["meeting"].map(waits["doubt_ns"]))
    last = last[2 * last["doubt_ns"] <= last["caused_ns"]]
    steps_ns = int(instances.together(partials, "steps")["dur_ns"].sum())
    caused = last.groupby("rank")["caused_ns"].sum()
    unread = _waits_for_unread(trace)
    caused = pd.concat([caused, unread]).sort_values(ascending=False, kind="stable")
    total_ns = int(caused.sum())
    if not total_ns or total_ns < _MATTERS * steps_ns:
        return
    for rank, time_ns in caused.head(_MOST).items():
        if time_ns >= _LARGE * total_ns and rank in unread:
            yield message(_UNREAD, rank=rank)
        elif time_ns >= _LARGE * total_ns:
            meetings = last[last["rank"] == rank]
            waiting = calls[calls["meeting"].isin(meetings["meeting"]) & (calls["rank"] != rank)]
            wait = message(
                _AT_LEAST if meetings["incomplete"].any() else _WAIT,
                time=int(time_ns), rank=rank, count=len(meetings), others=waiting["rank"].nunique(),
            )  # fmt: skip
            recorded = _recorded(trace, int(str(rank)), meetings)
            cause, share = _cause(trace, int(str(rank)), calls, meetings["meeting"])
            text = _UNRECORDED if recorded < _MOSTLY else _HELD if share >= _NAMED else _UNNAMED
            yield message(text, wait=wait, cause=cause, share=share, unrecorded=1 - recorded)


def _waits_for_unread(trace: Trace) -> pd.Series[int]:
    """Return the recorded waits of devices for each rank that was not read, in ns."""
    waits = stragglers.awaited(trace)
    rows = np.flatnonzero(~np.isin(waits.rank, [NO_ROW, *ranks(trace)]))
    return pd.Series((waits.end_ns - waits.start_ns)[rows], dtype="int64").groupby(waits.rank[rows]).sum()


def _recorded(trace: Trace, rank: int, meetings: pd.DataFrame) -> float:
    """Return the share of the time from the first arrivals to those of a rank in which the rank was recorded."""
    first = int(trace.ints("start_ns")[trace.ints("rank") == rank].min(initial=np.iinfo(np.int64).max))
    end = meetings["start_ns"].to_numpy(np.int64)
    begin, end = intervals.union(end - meetings["skew_ns"].to_numpy(np.int64), end)
    return float((end - np.minimum(np.maximum(begin, first), end)).sum() / max(int((end - begin).sum()), 1))


def _cause(trace: Trace, rank: int, calls: pd.DataFrame, meetings: pd.Series[int]) -> tuple[str | Message, float]:
    """Return the cause that takes longest in the account of a rank before the ``meetings``, beyond the time that it
    takes in the ranks that wait, and its share of the time by which the rank takes longer. Of several ranks that wait,
    the median counts."""
    labels, others = Labels(trace), calls[calls["meeting"].isin(meetings) & (calls["rank"] != rank)]
    longer = []
    for number, theirs in others.groupby("rank"):
        own, waiting = (_before(trace, at, calls, theirs["meeting"], labels) for at in (rank, int(str(number))))
        if own is not None and waiting is not None:
            longer.append([mine.sub(of_other, fill_value=0) for mine, of_other in zip(own, waiting, strict=True)])
    largest: tuple[str | Message, float] = ("", 0.0)
    for level in zip(*longer, strict=True):
        longer_ns = pd.concat(level, axis=1).fillna(0).median(axis=1)
        named, whole_ns = longer_ns[longer_ns.index >= 0], longer_ns[_WHOLE]
        if largest[1] < _NAMED and whole_ns > 0 and len(named):
            text = labels.texts[named.idxmax()]
            largest = _KINDS.get(text, text), min(named.max() / whole_ns, 1.0)
    return largest


def _before(
    trace: Trace, rank: int, calls: pd.DataFrame, meetings: pd.Series[int], labels: Labels
) -> tuple[pd.Series[int], pd.Series[int]] | None:
    """Return the time of a rank before ``meetings`` by the codes of ``labels``: of operators and host events, and of
    kinds of host work. :data:`_WHOLE` is the whole time, and NO_ROW that of communication and of causes without a name.
    None without a device."""
    work = np.flatnonzero(trace.rows("kind", *schema.DEVICE_WORK) & (trace.ints("rank") == rank))
    devices = trace.codes("device").codes[work]
    if not (devices >= 0).any():
        return None
    device = int(np.bincount(devices[devices >= 0], trace.ints("dur_ns")[work][devices >= 0]).argmax())
    segments = device_segments(trace, rank, device)
    of_rank = calls[(calls["rank"] == rank) & calls["meeting"].notna()].sort_values("start_ns")
    start = of_rank["start_ns"].to_numpy(np.int64)
    ended = np.maximum.accumulate(np.append(segments.start[:1], start + of_rank["dur_ns"].to_numpy(np.int64)))[:-1]
    chosen = of_rank["meeting"].isin(meetings).to_numpy(np.bool_)
    begin, end = np.minimum(ended, start)[chosen], start[chosen]
    _, at, _, width = in_windows(segments, begin, end)
    cause, part, _, _ = labels.of(segments)
    host = segments.word == WORDS.index(HOST)
    waits = segments.word == WORDS.index(COMMUNICATION)  # it waits itself
    whole = pd.Series([int((end - begin).sum())], index=[_WHOLE])
    by_event, by_kind = (
        pd.concat([whole, pd.Series(width).groupby(np.append(np.where(waits, NO_ROW, codes), NO_ROW)[at]).sum()])
        for codes in (np.where(host & (part != NO_ROW), part, cause), np.where(host, cause, NO_ROW))
    )
    return by_event, by_kind
