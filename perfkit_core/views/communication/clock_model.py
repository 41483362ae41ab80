"""Clock offsets of the ranks, with bounds and drift, computed from the collectives that ranks share.

A collective ends on all ranks at nearly the same time. The difference between two recorded ends is therefore the offset
between two clocks. The offset of a rank is the median of these differences between the rank and its reference rank. It
is kept within bounds, because no rank leaves a collective before the last rank has started it. If the differences show
a drift, the drift is corrected. Otherwise the offset is constant.

Ranks are connected if they share a collective, directly or through other ranks. The reference is the lowest of the
connected ranks. A rank whose clock contradicts the reference gets a different reference."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.views.communication.instances import UNMATCHED

SYNCHRONOUS: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Collectives that no rank can leave before the last rank has arrived."""
MOST_CROSSING_NS: Final = 10**6
"""If the lower bound of an offset exceeds the upper bound by more than this, the offset is unknown."""
MOST_DRIFT_PPM: Final = 500
"""Largest rate at which systems slew a clock (adjtime). A faster drift is not corrected."""
_FASTEST_DRIFT_PPM: Final = 10_000
"""No clock drifts by more than 1%, so a faster change is not treated as a drift."""
FOR_A_DRIFT: Final = 9
"""Minimum number of collectives to measure a drift: the first third and the last third then have three each."""
_LEAST_SPAN_NS: Final = 10**9
"""Minimum time between the medians of the first and the last third of the collectives, to measure a drift. Over a
shorter time, the ends of collectives scatter more than clocks drift."""
_CLEAR: Final = 10
"""A drift is clear if its effect over the recording is this many times the scatter of the collectives' end times."""
_LEAST_SCATTER_NS: Final = 1000
"""Lower limit, in ns, for the scatter of the collectives' end times. Some profilers round times to 1 µs."""
_MOST_ROUNDS: Final = 32
"""Maximum number of rounds in :func:`clock_offsets`. Only ranks whose clocks contradict others need another round."""
COLUMNS: Final = {
    "reference_rank": "Int64", "offset_ns": "Int64", "earliest_ns": "Int64", "latest_ns": "Int64", "matched": "int64",
    "residual_ns": "Int64", "max_residual_ns": "Int64", "drift_ppm": "Float64", "rate": "float64",
    "moment_ns": "int64", "constant_ns": "Int64", "numbered": "bool", "may_drift": "bool",
    "too_fast": "bool", "contradicts": "Int64",
}  # fmt: skip
_NOTHING: Final = dict.fromkeys(COLUMNS) | {
    "matched": 0, "rate": 0.0, "moment_ns": 0, "numbered": False, "may_drift": False, "too_fast": False
}  # fmt: skip
_ZERO: Final = dict.fromkeys(
    ("offset_ns", "earliest_ns", "latest_ns", "residual_ns", "max_residual_ns", "constant_ns", "drift_ppm"), 0
)
_Rows = dict[int, dict[str, Any]]


def clock_offsets(collectives: pd.DataFrame, ranks: Iterable[int] = ()) -> pd.DataFrame:
    """Return one row per rank, for all ranks of the matched ``collectives`` and for ``ranks``.

    Ranks are connected if they share collectives, directly or through other ranks. Two clocks contradict each other if
    the lower bound of their offset exceeds the upper bound by more than 1 ms. Otherwise, they agree. Columns:

    - ``reference_rank``: the rank whose clock is the reference, NA if no rank is connected. Connected ranks are tried
      in ascending order until one clock agrees with the rank's clock. If none agrees, the first one is taken.
    - ``offset_ns``: the rank's clock less the reference's clock, NA if unknown.
    - ``earliest_ns``, ``latest_ns``: the lower and the upper bound of the offset.
    - ``matched``: the number of shared collectives.
    - ``numbered``: whether all shared collectives were matched by numbers that the collective library recorded.
    - ``residual_ns``, ``max_residual_ns``: the median and largest difference between a collective's end on this rank
      and on the reference rank, after alignment.
    - ``drift_ppm``: how much faster the clock runs than the reference's. NA if collectives are too few or too close.
    - ``rate``: how much the offset grows per ns of the rank's clock, 0 if the drift is not corrected.
    - ``moment_ns``: the end of the first shared collective on the rank's clock, the time for which offset_ns holds.
    - ``constant_ns``: the offset without correction of the drift, NA if unknown.
    - ``may_drift``: whether a drift of up to MOST_DRIFT_PPM can explain that the lower bound exceeds the upper bound.
    - ``too_fast``: whether the drift is constant, but too fast to be corrected.
    - ``contradicts``: the first rank tried, if its clock contradicts the rank's clock. NA if it became the reference.
    """
    synchronous = collectives["collective"].isin(SYNCHRONOUS) & (collectives["match"] != UNMATCHED)
    usable = collectives[synchronous & (collectives["of_ranks"] > 1)]
    usable = pd.DataFrame(
        {"rank": usable["rank"].astype("int64"), "match": usable["match"], "start": usable["start_ns"],
         "end": usable["start_ns"] + usable["dur_ns"], "numbered": usable["sequence"].notna()}
    )  # fmt: skip
    rows: _Rows = {}
    alone: set[int] = set()
    left = _several(usable)
    # Each round aligns the ranks whose clocks agree with their reference. The next round aligns the other ranks, with
    # the lowest of them as reference. A reference with which no clock agrees never becomes a reference again.
    for _ in range(_MOST_ROUNDS):
        references = _references(left, alone)
        if not references:
            break
        compared = _spread(left[left["rank"].isin(references)], references)
        aligned = [rank for rank, row in compared.items() if row["offset_ns"] is not None]
        company = {references[rank] for rank in aligned if references[rank] != rank}
        aligned = [rank for rank in aligned if references[rank] in company]
        for rank, row in compared.items():
            if rank not in rows or rank in aligned or (rank in alone and references[rank] in company):
                before = rows.get(rank)
                in_vain = before is not None and before["offset_ns"] is None
                rows[rank] = row | {"contradicts": before["reference_rank"] if before and in_vain else None}
        alone |= set(references.values()) - company
        left = _several(left[~left["rank"].isin(aligned)])
    used = {row["reference_rank"] for rank, row in rows.items() if row["reference_rank"] != rank}
    rows = {rank: row for rank, row in rows.items() if row["reference_rank"] != rank or rank in used}
    everyone = sorted({*collectives["rank"].dropna().unique().tolist(), *ranks})
    table = pd.DataFrame.from_dict(dict.fromkeys(everyone, _NOTHING) | rows, orient="index", columns=list(COLUMNS))
    return table.astype(COLUMNS).rename_axis("rank")


def _several(usable: pd.DataFrame) -> pd.DataFrame:
    several: pd.DataFrame = usable[usable.groupby("match")["rank"].transform("size") > 1]
    return several


def _references(usable: pd.DataFrame, alone: Collection[int]) -> dict[int, int]:
    """Map each rank to its reference: the lowest of the ranks that collectives connect with it. Ranks in ``alone`` are
    no references, because no other clock agrees with theirs. Ranks without a reference are left out."""
    tied = usable.assign(first=usable.groupby("match")["rank"].transform("min"))[["rank", "first"]].drop_duplicates()
    above: dict[int, int] = {rank: rank for rank in tied["rank"].tolist()}

    def lowest(rank: int) -> int:
        while above[rank] != rank:
            above[rank] = rank = above[above[rank]]
        return rank

    for rank, first in zip(tied["rank"].tolist(), tied["first"].tolist(), strict=True):
        low, high = sorted((lowest(rank), lowest(first)))
        above[high] = low
    chosen: dict[int, int] = {}
    for rank in sorted(above.keys() - set(alone)):
        chosen.setdefault(lowest(rank), rank)
    return {rank: chosen[lowest(rank)] for rank in above if lowest(rank) in chosen}


def _spread(usable: pd.DataFrame, references: Mapping[int, int]) -> _Rows:
    """Return one row of :func:`clock_offsets` for each of the ``references`` and for each rank connected with them."""
    begun = usable["rank"].isin(set(references.values()))
    shared = usable["rank"][begun].value_counts()
    rows: _Rows = {
        rank: _NOTHING | _ZERO | {"matched": number, "reference_rank": rank}
        for rank, number in zip(shared.index.tolist(), shared.tolist(), strict=True)
    }
    aligned, waiting = usable[begun], usable[~begun]
    while len(aligned) and len(waiting):
        by_match, ordered = aligned.groupby("match"), aligned.sort_values(["match", "end"])
        match, first, count = np.unique(ordered["match"].to_numpy(), return_index=True, return_counts=True)
        middle = pd.Series(ordered["end"].to_numpy()[first + count // 2], match)
        ends = {"latest_start": by_match["start"].max(), "first_end": by_match["end"].min(), "reference": middle}
        pairs = waiting.join(pd.DataFrame(ends), on="match", how="inner")
        if pairs.empty:
            break
        of_rank, ranks = pairs.groupby("rank"), pairs["rank"].unique().tolist()
        reached = {rank: {"reference_rank": references[rank], **clock(of_rank.get_group(rank))} for rank in ranks}
        rows |= reached
        clocks = pd.DataFrame.from_dict(reached, orient="index")
        added = waiting[waiting["rank"].isin(clocks.index[clocks["offset_ns"].notna()])]
        rank = added["rank"].to_numpy(np.int64)
        moved = {edge: added[edge] - ahead_ns(clocks, rank, added[edge].to_numpy()) for edge in ("start", "end")}
        aligned, waiting = pd.concat([aligned, added.assign(**moved)]), waiting[~waiting["rank"].isin(reached)]
    return rows


@dataclass(frozen=True, slots=True)
class _Fit:
    """An offset and its bounds."""

    offset_ns: int
    earliest_ns: int  # lower bound
    latest_ns: int  # upper bound
    residuals: IntArray  # absolute differences of the ends after alignment

    @property
    def crossing_ns(self) -> int:
        return max(self.earliest_ns - self.latest_ns, 0)

    @property
    def known_ns(self) -> int | None:
        """The offset, or None if the bounds contradict each other."""
        return self.offset_ns if self.crossing_ns <= MOST_CROSSING_NS else None


def clock(mine: pd.DataFrame) -> dict[str, object]:
    """Return a rank's row of :func:`clock_offsets`. ``mine`` has a row for each collective shared with aligned ranks:

    - ``start``, ``end``: the start and the end on this rank, on its own clock.
    - ``reference``: the median of the ends on the aligned ranks, on the clock of the reference.
    - ``first_end``, ``latest_start``: the first end and the last start on the aligned ranks, on the same clock."""
    ends, time = mine["end"].to_numpy(), mine["reference"].to_numpy()
    difference, moment = ends - time, int(ends.min())
    drift: float | None = None
    if len(time) >= FOR_A_DRIFT:  # compare the first and the last third of the collectives
        order, third = np.argsort(time), len(time) // 3
        first, last = order[:third], order[-third:]
        elapsed = median(time[last]) - median(time[first])
        if elapsed >= _LEAST_SPAN_NS:
            drift = (median(difference[last]) - median(difference[first])) / elapsed
    constant, rate, too_fast = _fit(mine, 0.0, moment), 0.0, False
    fit = constant
    if drift is not None and abs(drift) * 1e6 <= _FASTEST_DRIFT_PPM:
        rank_drift = drift / (1 + drift)  # relative to the rank's clock
        without = _fit(mine, rank_drift, moment)
        # A drift is real if it clearly exceeds the scatter. It is also real if only the correction of the drift removes
        # a contradiction: without it, the lower bound of the offset is above the upper bound.
        scatter = max(median(without.residuals), _LEAST_SCATTER_NS)
        clear = abs(drift) * int(np.ptp(time)) >= _CLEAR * scatter and without.crossing_ns <= constant.crossing_ns
        even = clear or without.crossing_ns <= MOST_CROSSING_NS < constant.crossing_ns
        too_fast = even and abs(drift) * 1e6 > MOST_DRIFT_PPM
        if even and not too_fast:
            fit, rate = without, rank_drift
    return {
        "offset_ns": fit.known_ns,
        "earliest_ns": fit.earliest_ns,
        "latest_ns": fit.latest_ns,
        "matched": len(mine),
        "residual_ns": median(fit.residuals),
        "max_residual_ns": int(fit.residuals.max()),
        "drift_ppm": None if drift is None else drift * 1e6,
        "rate": rate,
        "moment_ns": moment,
        "constant_ns": constant.known_ns,
        "numbered": bool(mine["numbered"].all()),
        "may_drift": fit.crossing_ns * 1e6 <= MOST_DRIFT_PPM * int(np.ptp(ends)),
        "too_fast": too_fast,
    }


def _fit(mine: pd.DataFrame, rate: float, moment: int) -> _Fit:
    start, end = (mine[edge].to_numpy() - gained_ns(rate, moment, mine[edge].to_numpy()) for edge in ("start", "end"))
    difference = end - mine["reference"].to_numpy()
    earliest = int((start - mine["first_end"].to_numpy()).max())
    latest = int((end - mine["latest_start"].to_numpy()).min())
    offset = median(difference)
    if earliest <= latest:
        offset = min(max(offset, earliest), latest)
    return _Fit(offset, earliest, latest, np.abs(difference - offset))


def gained_ns(rate: float, moment_ns: int, time: IntArray) -> IntArray:
    """Return how much the offset of a clock grows from ``moment_ns`` to each ``time``. Both are times of this clock."""
    gained: IntArray = np.rint(rate * (time - moment_ns)).astype(np.int64)
    return gained


def median(values: IntArray) -> int:
    """Return the median. Of an even number of values, return the upper of the two middle values."""
    return int(np.sort(values)[len(values) // 2])


def ahead_ns(clocks: pd.DataFrame, rank: IntArray, time: IntArray) -> IntArray:
    """Return how far the clock of each ``rank[i]`` is ahead of its reference's clock, when the clock of the rank shows
    ``time[i]``. The result is 0 for ranks without an offset. ``clocks`` is a table of :func:`clock_offsets`."""
    distinct, code = np.unique(rank, return_inverse=True)
    offsets = clocks[clocks["offset_ns"].notna()].reindex(distinct)
    ahead: IntArray = offsets["offset_ns"].fillna(0).to_numpy(np.int64)[code]
    for at in np.flatnonzero(offsets["rate"].fillna(0).to_numpy()).tolist():
        mine = code == at
        ahead[mine] += gained_ns(float(offsets["rate"].iloc[at]), int(offsets["moment_ns"].iloc[at]), time[mine])
    return ahead


def crossing_ns(clocks: pd.DataFrame) -> pd.Series[int]:
    """Return ``max(lower bound - upper bound, 0)`` of each offset: by how much its bounds contradict each other."""
    return (clocks["earliest_ns"] - clocks["latest_ns"]).clip(lower=0).fillna(0).astype("int64")


def meetings(collectives: pd.DataFrame, clocks: pd.DataFrame) -> pd.Series[int]:
    """Return a meeting number for each row of ``collectives`` that is part of a meeting. A meeting is one synchronous
    collective on several ranks that have the same reference. The rows of a meeting have equal numbers. ``clocks`` is a
    table of :func:`clock_offsets`."""
    reference = collectives["rank"].map(clocks["reference_rank"].where(clocks["offset_ns"].notna()))
    synchronous = collectives["collective"].isin(SYNCHRONOUS) & (collectives["match"] != UNMATCHED)
    usable = synchronous & reference.notna()
    met = [collectives["match"][usable], reference[usable].astype("int64")]
    number = collectives[usable].groupby(met, sort=False).ngroup()
    several: pd.Series[int] = number[number.groupby(number).transform("size") > 1]
    return several
