"""When did each rank come to a collective, on one clock, and how long did it wait for the last one?

Clocks are aligned by the ends of the collectives (``clock_offsets``), those of ranks that wait for each other. A rank
waits from its own start to the start of the last rank, at most until its own end; what follows is the transfer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from perfkit_core.analyses.communication.clock_offsets import SYNCHRONOUS, ahead_ns, clock_offsets, crossing_ns
from perfkit_core.analyses.communication.matching import UNMATCHED
from perfkit_core.analyses.communication.partials import Partial, all_collectives


def arrivals(partials: Sequence[Partial]) -> pd.DataFrame:
    """The collectives of all ranks (:func:`matching.matched`), with, for those that several aligned ranks recorded and
    that nobody leaves before the last has come: ``late_ns`` (start after the first rank's), ``wait_ns``, ``doubt_ns``
    (how much of that clocks which contradict themselves leave open), ``skew_ns`` (the last rank's start less the first
    one's), ``last`` (this rank came last; of ranks that came at one time, the lowest). NA and False for the others,
    which are not ``complete`` either."""
    found = all_collectives(partials)
    clocks = clock_offsets(found)
    known = found["rank"].isin(clocks.index[clocks["offset_ns"].notna()])
    usable = found["collective"].isin(SYNCHRONOUS) & (found["match"] != UNMATCHED) & known
    rank, start = found["rank"][usable].astype("int64"), found["start_ns"][usable]
    start = start - ahead_ns(clocks, np.asarray(rank, np.int64), np.asarray(start, np.int64))
    by_match = start.groupby(found["match"][usable])
    present = by_match.transform("size")
    several = present > 1
    first, last = by_match.transform("min")[several], by_match.transform("max")[several]
    start = start[several]
    wait = (last - start).clip(upper=found["dur_ns"][start.index])
    open_ns = rank[several].map(crossing_ns(clocks))
    of_last = open_ns.where(start == last, 0).groupby(found["match"][start.index]).transform("max")
    doubt = wait.clip(upper=open_ns.clip(lower=of_last))
    times = {"late_ns": start - first, "wait_ns": wait, "doubt_ns": doubt, "skew_ns": last - first}
    found = found.assign(**{name: each.reindex(found.index).astype("Int64") for name, each in times.items()})
    everybody = (present == found["of_ranks"][present.index]).reindex(found.index, fill_value=False)
    found["complete"] &= everybody
    latest = found.loc[start.index[(start == last).to_numpy()], ["match", "rank"]].sort_values("rank")
    found["last"] = False
    found.loc[latest.drop_duplicates("match").index, "last"] = True
    return found


def transfer_ns(found: pd.DataFrame) -> pd.Series[int]:
    """Of :func:`arrivals`: duration less the wait for the last rank; NA unless all ranks of the group were recorded,
    and where nothing is left (the clocks are not told apart that well)."""
    time = found["dur_ns"] - found["wait_ns"]
    return time.where(found["complete"] & (time > 0).fillna(False))
