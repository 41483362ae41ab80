"""How far are the clocks of the ranks from each other?

A collective in which everybody takes part ends on all ranks at nearly the same time, so ranks that share some can be
set on one clock (``clock_model``): that of the lowest of them. Ranks that share no collective with it are reached
through those that do. Ranks that nothing ties to others, such as the data-parallel groups of different pipeline stages,
have a clock for each such part.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.analyses.communication.clock_model import clock, gained_ns
from perfkit_core.analyses.communication.matching import UNMATCHED
from perfkit_core.trace import IntArray

SYNCHRONOUS: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Collectives that no rank can leave before the last one has come."""

COLUMNS: Final = {
    "reference_rank": "Int64", "offset_ns": "Int64", "earliest_ns": "Int64", "latest_ns": "Int64", "matched": "int64",
    "residual_ns": "Int64", "max_residual_ns": "Int64", "drift_ppm": "Float64", "rate": "float64",
    "moment_ns": "int64", "constant_ns": "Int64", "numbered": "bool", "may_drift": "bool",
}  # fmt: skip
_NOTHING: Final = dict.fromkeys(COLUMNS) | {
    "matched": 0, "rate": 0.0, "moment_ns": 0, "numbered": False, "may_drift": False
}  # fmt: skip
_ZERO: Final = dict.fromkeys(
    ("offset_ns", "earliest_ns", "latest_ns", "residual_ns", "max_residual_ns", "constant_ns"), 0
)


def clock_offsets(found: pd.DataFrame, ranks: Iterable[int] = ()) -> pd.DataFrame:
    """By rank, of matched collectives (:func:`matching.matched`) and of ``ranks`` that may have none:

    ``reference_rank`` (the lowest of those that collectives tie to it; NA where there is none), ``offset_ns`` (its
    clock less that of the reference; NA where it cannot be told), its bounds ``earliest_ns`` and ``latest_ns``,
    ``matched`` collectives, ``residual_ns`` and ``max_residual_ns`` (median and largest difference of the ends after
    alignment), ``drift_ppm`` (how much faster it runs; NA with too few collectives, or too short a time between them).

    Where the drift is taken away, ``rate`` is what the clock gains by its own time, else 0; the offset and its bounds
    are those of ``moment_ns`` on its clock, the end of the first collective it shares, and ``constant_ns`` is the
    offset without a rate (NA where that cannot be told). ``numbered``: all were matched by the library's numbers;
    ``may_drift``: what its bounds cross by is no more than clocks drift.
    """
    usable = found[(found["match"] != UNMATCHED) & found["collective"].isin(SYNCHRONOUS) & (found["of_ranks"] > 1)]
    usable = pd.DataFrame(
        {"rank": usable["rank"].astype("int64"), "match": usable["match"], "start": usable["start_ns"],
         "end": usable["start_ns"] + usable["dur_ns"], "numbered": usable["sequence"].notna()}
    )  # fmt: skip
    rows = {rank: dict(_NOTHING) for rank in sorted({*found["rank"].dropna().unique().tolist(), *ranks})}
    references = _references(usable)
    for rank, count in usable[usable["rank"].isin(set(references.values()))].groupby("rank").size().items():
        rows[rank] |= {**_ZERO, "matched": int(count), "drift_ppm": 0.0}
    _spread(usable, usable["rank"].isin(set(references.values())), rows)
    for rank, reference in references.items():
        rows[rank] |= {"reference_rank": reference if rows[rank]["matched"] else None}
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


def _references(usable: pd.DataFrame) -> dict[int, int]:
    """Of each rank the lowest one that collectives tie it to, through others or not."""
    tied = usable.assign(first=usable.groupby("match")["rank"].transform("min"))[["rank", "first"]].drop_duplicates()
    above: dict[int, int] = {rank: rank for rank in tied["rank"].tolist()}

    def lowest(rank: int) -> int:
        while above[rank] != rank:
            above[rank] = rank = above[above[rank]]
        return rank

    for rank, first in zip(tied["rank"].tolist(), tied["first"].tolist(), strict=True):
        one, other = sorted((lowest(rank), lowest(first)))
        above[other] = one
    return {rank: lowest(rank) for rank in above}


def _spread(usable: pd.DataFrame, begun: pd.Series[bool], rows: dict[int, dict[str, object]]) -> None:
    """Fill the rows of the ranks that share a collective with those that are aligned, until none is left."""
    known, waiting = usable[begun], usable[~begun]
    while len(known) and len(waiting):
        by_match = known.groupby("match")
        reference = pd.DataFrame(
            {
                "latest_start": by_match["start"].max(),
                "first_end": by_match["end"].min(),
                "reference": _medians(known),
            }
        )
        pairs = waiting.join(reference, on="match", how="inner")
        if pairs.empty:
            return
        reached = pairs["rank"].unique().tolist()
        for rank, mine in pairs.groupby("rank"):
            rows[rank] |= clock(mine)  # type: ignore[index]
        clocks = pd.DataFrame.from_dict({rank: rows[rank] for rank in reached}, orient="index")
        aligned = waiting[waiting["rank"].isin(clocks.index[clocks["offset_ns"].notna()])]
        of = aligned["rank"].to_numpy(np.int64)
        moved = {edge: aligned[edge] - ahead_ns(clocks, of, aligned[edge].to_numpy()) for edge in ("start", "end")}
        known, waiting = pd.concat([known, aligned.assign(**moved)]), waiting[~waiting["rank"].isin(reached)]


def _medians(known: pd.DataFrame) -> pd.Series[int]:
    """Of the ends of each collective."""
    ordered = known.sort_values(["match", "end"])
    match, first, count = np.unique(ordered["match"].to_numpy(), return_index=True, return_counts=True)
    return pd.Series(ordered["end"].to_numpy()[first + count // 2], match)
