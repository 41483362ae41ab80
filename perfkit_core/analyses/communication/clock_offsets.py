"""How far is the clock of each rank from that of the first one?

A collective in which everybody takes part ends on all ranks at nearly the same time: the offset of a clock is the
median difference of the ends. It also cannot end anywhere before its last participant has begun, which bounds the
offset from both sides. Ranks that share no collective with the first one are reached through those that do.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.analyses.communication.matching import UNMATCHED
from perfkit_core.trace import IntArray

SYNCHRONOUS: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Collectives that no rank can leave before the last one has come."""

_FOR_A_DRIFT: Final = 9
"""Collectives from which a drift can be told: three at the beginning, three at the end."""

_LEAST_SPAN_NS: Final = 10**9
"""Over a shorter time the ends scatter more than clocks drift."""

MOST_CROSSING_NS: Final = 10**6
"""By how much drifting clocks may let the bounds cross; what crosses further was not one collective."""

COLUMNS: Final = {
    "offset_ns": "Int64", "earliest_ns": "Int64", "latest_ns": "Int64", "matched": "int64", "residual_ns": "Int64",
    "max_residual_ns": "Int64", "drift_ppm": "Float64",
}  # fmt: skip


def clock_offsets(found: pd.DataFrame) -> pd.DataFrame:
    """By rank, of matched collectives (:func:`matching.matched`): ``offset_ns`` (its clock less that of the first
    rank; NA where nothing ties them), its bounds ``earliest_ns`` and ``latest_ns``, ``matched`` collectives,
    ``residual_ns`` and ``max_residual_ns`` (median and largest difference of the ends after alignment), ``drift_ppm``
    (how much faster it runs; NA with too few collectives, or too short a time between them)."""
    ranks = sorted(found["rank"].dropna().unique().tolist())
    usable = found[(found["match"] != UNMATCHED) & found["collective"].isin(SYNCHRONOUS) & (found["of_ranks"] > 1)]
    usable = pd.DataFrame(
        {"rank": usable["rank"].astype("int64"), "match": usable["match"], "start": usable["start_ns"],
         "end": usable["start_ns"] + usable["dur_ns"]}
    )  # fmt: skip
    rows = {rank: dict.fromkeys(COLUMNS, None) | {"matched": 0} for rank in ranks}
    if ranks:
        known = usable[usable["rank"] == ranks[0]]
        zero = {"offset_ns": 0, "earliest_ns": 0, "latest_ns": 0, "residual_ns": 0, "max_residual_ns": 0}
        rows[ranks[0]] |= {**zero, "matched": len(known), "drift_ppm": 0.0}
        _spread(usable, known, rows)
    table = pd.DataFrame.from_dict(rows, orient="index", columns=list(COLUMNS)).astype(COLUMNS)
    return table.rename_axis("rank")


def _spread(usable: pd.DataFrame, known: pd.DataFrame, rows: dict[int, dict[str, object]]) -> None:
    """Fill the rows of the ranks that share a collective with those that are aligned, until none is left."""
    waiting = usable[~usable["rank"].isin(known["rank"])]
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
        for rank, mine in pairs.groupby("rank"):
            rows[rank] = _offset(mine)  # type: ignore[index]
        shift = waiting["rank"].map({rank: row["offset_ns"] for rank, row in rows.items()})
        aligned = waiting[shift.notna()].assign(
            **{edge: waiting[edge] - shift[shift.notna()].astype("int64") for edge in ("start", "end")}
        )
        known, waiting = pd.concat([known, aligned]), waiting[~waiting["rank"].isin(pairs["rank"])]


def _medians(known: pd.DataFrame) -> pd.Series[int]:
    """Of the ends of each collective."""
    ordered = known.sort_values(["match", "end"])
    match, first, count = np.unique(ordered["match"].to_numpy(), return_index=True, return_counts=True)
    return pd.Series(ordered["end"].to_numpy()[first + count // 2], match)


def _median(values: IntArray) -> int:
    """An exact integer: of an even number the larger one of the two in the middle."""
    return int(np.sort(values)[len(values) // 2])


def _offset(mine: pd.DataFrame) -> dict[str, object]:
    difference = (mine["end"] - mine["reference"]).to_numpy()
    earliest, latest = int((mine["start"] - mine["first_end"]).max()), int((mine["end"] - mine["latest_start"]).min())
    offset = _median(difference)
    if earliest <= latest:
        offset = min(max(offset, earliest), latest)
    residual = np.abs(difference - offset)
    return {
        "offset_ns": offset if earliest - latest <= MOST_CROSSING_NS else None,
        "earliest_ns": earliest,
        "latest_ns": latest,
        "matched": len(mine),
        "residual_ns": _median(residual),
        "max_residual_ns": int(residual.max()),
        "drift_ppm": _drift_ppm(mine["reference"].to_numpy(), difference),
    }


def _drift_ppm(time: IntArray, difference: IntArray) -> float | None:
    """Between the medians of the first and of the last third of the collectives."""
    if len(time) < _FOR_A_DRIFT:
        return None
    order, third = np.argsort(time), len(time) // 3
    first, last = order[:third], order[-third:]
    elapsed = _median(time[last]) - _median(time[first])
    return (
        (_median(difference[last]) - _median(difference[first])) / elapsed * 1e6 if elapsed >= _LEAST_SPAN_NS else None
    )
