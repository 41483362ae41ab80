"""When did each rank come to a collective, on one clock, and how long did it wait for the last one?

Clocks are aligned by the ends of the collectives (``clock_offsets``), those of ranks that wait for each other. A rank
waits from its own start to the start of the last rank, at most until its own end; what follows is the transfer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.views.communication.clock_offsets import ahead_ns, clock_offsets, crossing_ns, meetings
from perfkit_core.views.communication.partials import Partial, all_collectives, all_ranks

_TIMES: Final = ("late_ns", "wait_ns", "doubt_ns", "skew_ns", "meeting")


def arrivals(partials: Sequence[Partial]) -> pd.DataFrame:
    """The collectives of all ranks (:func:`matching.matched`), with, for those that several aligned ranks recorded and
    that nobody leaves before the last has come: ``meeting`` (a number that ranks on one clock have in common),
    ``late_ns`` (start after the first rank's), ``wait_ns``, ``doubt_ns`` (how much of that clocks which contradict
    themselves leave open), ``skew_ns`` (the last rank's start less the first one's), ``last`` (this rank came last; of
    ranks that came at one time, the lowest), ``incomplete`` (a rank of the group is not among them, and may have come
    later). NA and False for the others, which are not ``complete`` either."""
    found = all_collectives(partials)
    clocks = clock_offsets(found)
    met = _met(found, clocks)
    by_meeting = met.groupby("meeting")
    first, last = by_meeting["start"].transform("min"), by_meeting["start"].transform("max")
    latest = met[met["start"] == last].sort_values("rank").drop_duplicates("meeting")
    wait = (last - met["start"]).clip(upper=found["dur_ns"][met.index])
    doubt = wait.clip(upper=_open_ns(met, latest.set_index("meeting"), crossing_ns(clocks)))
    times = (met["start"] - first, wait, doubt, last - first, met["meeting"])
    columns = {name: each.reindex(found.index).astype("Int64") for name, each in zip(_TIMES, times, strict=True)}
    present = by_meeting["start"].transform("size").reindex(found.index, fill_value=0)
    found = found.assign(**columns, last=found.index.isin(latest.index))
    found["complete"] &= present == found["of_ranks"]
    found["incomplete"] = (present > 0) & (present < _expected(found, partials))
    return found


def transfer_ns(found: pd.DataFrame) -> pd.Series[int]:
    """Of :func:`arrivals`: duration less the wait for the last rank; NA unless all ranks of the group were recorded,
    and where clocks leave it open: nothing is left, or by more than half of it something else than the collective took
    on the rank where it took least, which is the one that did not wait."""
    time = found["dur_ns"] - found["wait_ns"]
    least = found.groupby("match")["dur_ns"].transform("min")
    return time.where(found["complete"] & ((time > 0) & (2 * (time - least).abs() <= time)).fillna(False))


def _met(found: pd.DataFrame, clocks: pd.DataFrame) -> pd.DataFrame:
    """Columns meeting, rank, start and end (on the clock of its reference); a row for each that meets others."""
    meeting = meetings(found, clocks)
    rank, start = found["rank"][meeting.index].astype("int64"), found["start_ns"][meeting.index]
    met = pd.DataFrame(
        {"meeting": meeting, "rank": rank, "start": start, "end": start + found["dur_ns"][meeting.index]}
    )
    of = met["rank"].to_numpy(np.int64)
    return met.assign(**{edge: met[edge] - ahead_ns(clocks, of, met[edge].to_numpy()) for edge in ("start", "end")})


def _open_ns(met: pd.DataFrame, latest: pd.DataFrame, crossing: pd.Series[int]) -> pd.Series[int]:
    """How far off a wait may be: by what the bounds of either clock cross by, and by what the ends, which ought to be
    one, differ. A last rank that took longer than another seems to have waited for that one itself."""
    took = met["end"] - met["start"]
    least = took.groupby(met["meeting"]).min()
    of_last = latest.assign(itself=latest["end"] - latest["start"] - least, crossing=latest["rank"].map(crossing))
    of_last = of_last.loc[met["meeting"]].set_axis(met.index)
    ends = (met["end"] - of_last["end"]).abs() + of_last["itself"]
    return pd.concat([ends, of_last["crossing"], met["rank"].map(crossing)], axis=1).max(axis=1)


def _expected(found: pd.DataFrame, partials: Sequence[Partial]) -> pd.Series[int]:
    """How many ranks a collective has: as its group tells, else those that recorded it and all that were not read."""
    world = max((partial["world_size"] or 0 for partial in partials), default=0)
    return found["group_size"].fillna(found["of_ranks"] + max(world - len(all_ranks(partials)), 0))
