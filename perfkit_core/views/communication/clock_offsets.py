"""How far are the clocks of the ranks from each other?

A collective in which everybody takes part ends on all ranks at nearly the same time, so ranks that share some can be
set on one clock (``clock_model``): that of the lowest of them. Ranks that share no collective with it are reached
through those that do. Ranks that nothing ties to others, such as the data-parallel groups of different pipeline stages,
have a clock for each such part; so have those that agree with each other and contradict the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.views.communication.clock_model import clock, gained_ns
from perfkit_core.views.communication.matching import UNMATCHED

SYNCHRONOUS: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Collectives that no rank can leave before the last one has come."""

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

_MOST_ROUNDS: Final = 32
"""So many clocks are taken for that of others. Each round takes as long as the first one; a job has few bad clocks."""
_Rows = dict[int, dict[str, Any]]


def clock_offsets(found: pd.DataFrame, ranks: Iterable[int] = ()) -> pd.DataFrame:
    """By rank, of matched collectives (:func:`matching.matched`) and of ``ranks`` that may have none:

    ``reference_rank`` (the lowest of those that collectives tie to it and that do not contradict each other; NA where
    there is none), ``offset_ns`` (its
    clock less that of the reference; NA where it cannot be told), its bounds ``earliest_ns`` and ``latest_ns``,
    ``matched`` collectives, ``residual_ns`` and ``max_residual_ns`` (median and largest difference of the ends after
    alignment), ``drift_ppm`` (how much faster it runs; NA with too few collectives, or too short a time between them).

    Where the drift is taken away, ``rate`` is what the clock gains by its own time, else 0; the offset and its bounds
    are those of ``moment_ns`` on its clock, the end of the first collective it shares, and ``constant_ns`` is the
    offset without a rate (NA where that cannot be told). ``numbered``: all were matched by the library's numbers;
    ``may_drift``: what its bounds cross by is no more than clocks drift; ``too_fast``: it drifts evenly, but by more
    than is taken away; ``contradicts``: the lowest rank of those that this one was to be compared with before.
    """
    usable = found[(found["match"] != UNMATCHED) & found["collective"].isin(SYNCHRONOUS) & (found["of_ranks"] > 1)]
    usable = pd.DataFrame(
        {"rank": usable["rank"].astype("int64"), "match": usable["match"], "start": usable["start_ns"],
         "end": usable["start_ns"] + usable["dur_ns"], "numbered": usable["sequence"].notna()}
    )  # fmt: skip
    known = sorted({*found["rank"].dropna().unique().tolist(), *ranks})
    rows = dict.fromkeys(known, _NOTHING) | _compared(usable)
    table = pd.DataFrame.from_dict(rows, orient="index", columns=list(COLUMNS)).astype(COLUMNS)
    return table.rename_axis("rank")


def ahead_ns(clocks: pd.DataFrame, rank: IntArray, time: IntArray) -> IntArray:
    """By how much clocks (of :func:`clock_offsets`) are ahead of those of their references at times that they show
    themselves, shape (len(time),); 0 for ranks whose clock is not told."""
    known, code = np.unique(rank, return_inverse=True)
    told = clocks[clocks["offset_ns"].notna()].reindex(known)
    ahead: IntArray = told["offset_ns"].fillna(0).to_numpy(np.int64)[code]
    for at in np.flatnonzero(told["rate"].fillna(0).to_numpy()).tolist():
        mine = code == at
        ahead[mine] += gained_ns(float(told["rate"].iloc[at]), int(told["moment_ns"].iloc[at]), time[mine])
    return ahead


def crossing_ns(clocks: pd.DataFrame) -> pd.Series[int]:
    """By how much the bounds of each clock contradict each other: it is not known better than that."""
    return (clocks["earliest_ns"] - clocks["latest_ns"]).clip(lower=0).fillna(0).astype("int64")


def meetings(found: pd.DataFrame, clocks: pd.DataFrame) -> pd.Series[int]:
    """A number for the ranks that meet in a collective on one clock (of :func:`clock_offsets`, with an offset), by the
    rows of matched collectives that nobody leaves before the last one has come, as far as several such ranks meet."""
    reference = found["rank"].map(clocks["reference_rank"].where(clocks["offset_ns"].notna()))
    usable = found["collective"].isin(SYNCHRONOUS) & (found["match"] != UNMATCHED) & reference.notna()
    met = [found["match"][usable], reference[usable].astype("int64")]
    number = found[usable].groupby(met, sort=False).ngroup()
    several: pd.Series[int] = number[number.groupby(number).transform("size") > 1]
    return several


def _compared(usable: pd.DataFrame) -> _Rows:
    """The rows of ranks that share collectives: set on the clock of the lowest of them; of those that contradict it, or
    are reached through such a one only, on that of the lowest of these, and so on. Whom nobody agrees with is compared
    with those who agree with each other."""
    rows: _Rows = {}
    alone: set[int] = set()
    left = _several(usable)
    for _ in range(_MOST_ROUNDS):
        references = _references(left, alone)
        if not references:
            break
        found = _spread(left[left["rank"].isin(references)], references)
        told = [rank for rank, row in found.items() if row["offset_ns"] is not None]
        company = {references[rank] for rank in told if references[rank] != rank}
        told = [rank for rank in told if references[rank] in company]
        for rank, row in found.items():
            if rank not in rows or rank in told or (rank in alone and references[rank] in company):
                rows[rank] = row | {"contradicts": _contradicted(rows.get(rank))}
        alone |= set(references.values()) - company
        left = _several(left[~left["rank"].isin(told)])
    compared = {row["reference_rank"] for rank, row in rows.items() if row["reference_rank"] != rank}
    return {rank: row for rank, row in rows.items() if row["reference_rank"] != rank or rank in compared}


def _contradicted(before: Mapping[str, Any] | None) -> int | None:
    """With which clock a rank was compared before in vain."""
    return before["reference_rank"] if before and before["offset_ns"] is None else None


def _several(usable: pd.DataFrame) -> pd.DataFrame:
    """The collectives that several ranks are left of."""
    several: pd.DataFrame = usable[usable.groupby("match")["rank"].transform("size") > 1]
    return several


def _references(usable: pd.DataFrame, alone: Collection[int]) -> dict[int, int]:
    """Of each rank the lowest one that collectives tie it to, through others or not, but for those that turned out to
    be alone; without the ranks that only such are tied to."""
    tied = usable.assign(first=usable.groupby("match")["rank"].transform("min"))[["rank", "first"]].drop_duplicates()
    above: dict[int, int] = {rank: rank for rank in tied["rank"].tolist()}

    def lowest(rank: int) -> int:
        while above[rank] != rank:
            above[rank] = rank = above[above[rank]]
        return rank

    for rank, first in zip(tied["rank"].tolist(), tied["first"].tolist(), strict=True):
        one, other = sorted((lowest(rank), lowest(first)))
        above[other] = one
    chosen: dict[int, int] = {}
    for rank in sorted(above.keys() - set(alone)):
        chosen.setdefault(lowest(rank), rank)
    return {rank: chosen[lowest(rank)] for rank in above if lowest(rank) in chosen}


def _spread(usable: pd.DataFrame, references: Mapping[int, int]) -> _Rows:
    """The rows of the references, and of the ranks that share a collective with those that are aligned, until none is
    left."""
    begun = usable["rank"].isin(set(references.values()))
    count = usable["rank"][begun].value_counts()
    rows: _Rows = {
        rank: _NOTHING | _ZERO | {"matched": of, "reference_rank": rank}
        for rank, of in zip(count.index.tolist(), count.tolist(), strict=True)
    }
    known, waiting = usable[begun], usable[~begun]
    while len(known) and len(waiting):
        pairs = waiting.join(_ends(known), on="match", how="inner")
        if pairs.empty:
            break
        of_rank, ranks = pairs.groupby("rank"), pairs["rank"].unique().tolist()
        reached = {rank: {"reference_rank": references[rank], **clock(of_rank.get_group(rank))} for rank in ranks}
        rows |= reached
        clocks = pd.DataFrame.from_dict(reached, orient="index")
        aligned = waiting[waiting["rank"].isin(clocks.index[clocks["offset_ns"].notna()])]
        of = aligned["rank"].to_numpy(np.int64)
        moved = {edge: aligned[edge] - ahead_ns(clocks, of, aligned[edge].to_numpy()) for edge in ("start", "end")}
        known, waiting = pd.concat([known, aligned.assign(**moved)]), waiting[~waiting["rank"].isin(reached)]
    return rows


def _ends(known: pd.DataFrame) -> pd.DataFrame:
    """What the aligned ranks tell of each collective."""
    by_match = known.groupby("match")
    return pd.DataFrame(
        {"latest_start": by_match["start"].max(), "first_end": by_match["end"].min(), "reference": _medians(known)}
    )


def _medians(known: pd.DataFrame) -> pd.Series[int]:
    """Of the ends of each collective."""
    ordered = known.sort_values(["match", "end"])
    match, first, count = np.unique(ordered["match"].to_numpy(), return_index=True, return_counts=True)
    return pd.Series(ordered["end"].to_numpy()[first + count // 2], match)
