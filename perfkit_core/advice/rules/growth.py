"""What takes longer in some steps than in others: which operators, which kernels, or all kernels by one factor?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.analyses.communication.communicating import communication
from perfkit_core.language import in_english
from perfkit_core.replay.batches import waited
from perfkit_core.replay.build import Replay
from perfkit_core.schema import KERNEL, STEP
from perfkit_core.trace import BoolArray, IntArray, Trace

OUTSIDE: Final = in_english("time outside of every recorded event")
_MOST: Final = 3
_SHARE: Final = 0.1
"""What grew by less than this share of all growth is not told."""
_AGREE: Final = 0.1
"""Kernels whose factor is so close to that of all grew by one factor."""
_MAJORITY: Final = 0.8
"""Share of the time of kernels that must agree."""
_LEAST_KERNELS: Final = 3


def grown(replay: Replay, steps: pd.DataFrame, late: pd.DataFrame) -> pd.Series[int]:
    """Up to three names, and by how much each takes longer in a ``late`` step (average) than in the others (median), in
    ns: what host events and device work take without waiting for others, but for batches, since nothing recorded tells
    what makes those late; the largest first. Steps have columns rank and step."""
    trace, graph = replay.trace, replay.graph
    nodes = np.flatnonzero(graph.row >= 0)
    busy = np.zeros(len(trace), np.int64)
    np.add.at(busy, graph.row[nodes], graph.dur_ns[nodes])
    waiting, waited_ns = waited(graph)
    np.add.at(busy, graph.row[waiting], waited_ns)
    time = _by_name(trace, busy > 0, busy)
    is_late = _within(time, late)
    after = time[is_late].groupby("name", observed=True)["time"].sum() / len(late)
    others = steps.drop(late.index)
    before = _median(time[~is_late & _within(time, others)], after.index, len(others))
    growth = (after - before).round().astype("int64").sort_values(ascending=False, kind="stable")
    return growth[growth > _SHARE * growth.clip(lower=0).sum()].head(_MOST)


@dataclass(frozen=True, slots=True)
class Longer:
    """Kernels take ``factor`` times as long: how many names of ``kernels``, and the share of their time that agrees."""

    factor: float
    kernels: int
    agreeing: float


def longer_kernels(trace: Trace, early: pd.DataFrame, late: pd.DataFrame) -> Longer | None:
    """By how much all kernels that compute take longer in late steps; None where they are not the same, too few, or do
    not agree."""
    chosen = ~trace.host & trace.rows("kind", KERNEL) & ~communication(trace).device
    time = _by_name(trace, chosen, trace.ints("dur_ns"))
    parts = [time[_within(time, one)].groupby("name", observed=True)["time"].agg(["sum", "median", "size"])
             .assign(steps=len(one)) for one in (early, late)]  # fmt: skip
    both = parts[0].add_suffix("_early").join(parts[1].add_suffix("_late"), how="inner")
    if len(both) < _LEAST_KERNELS or max(map(len, parts)) > len(both):
        return None
    ratio = both["median_late"] / both["median_early"].clip(lower=1)
    weight = both["sum_early"] / both["sum_early"].sum()
    factor = float((ratio * weight).sum())
    agreeing = float(weight[(ratio / factor - 1).abs() <= _AGREE].sum())
    return Longer(factor, len(both), agreeing) if agreeing >= _MAJORITY else None


def _by_name(trace: Trace, chosen: BoolArray, time: IntArray) -> pd.DataFrame:
    """Sums by rank, step and name, in steps; what steps have for themselves has one name."""
    rows = np.flatnonzero(chosen & (trace.ints("step") >= 0))
    names = trace.codes("name")
    code = np.where(trace.rows("kind", STEP)[rows], len(names.values), names.codes[rows])
    keys = {"rank": trace.ints("rank")[rows], "step": trace.ints("step")[rows], "code": code}
    found = pd.DataFrame({**keys, "time": time[rows]}).groupby(list(keys), as_index=False)["time"].sum()
    name = pd.Categorical.from_codes(found["code"], pd.Index([*names.values, OUTSIDE]).astype(object))
    named: pd.DataFrame = found.assign(name=name)
    return named


def _within(time: pd.DataFrame, steps: pd.DataFrame) -> BoolArray:
    found: BoolArray = pd.MultiIndex.from_frame(time[["rank", "step"]]).isin(
        pd.MultiIndex.from_frame(steps[["rank", "step"]])
    )
    return found


def _median(time: pd.DataFrame, names: pd.Index, steps: int) -> pd.Series[float]:
    """Of each name over so many steps; a step without the name counts as 0."""
    grouped = time.groupby("name", observed=True)["time"]
    known = grouped.agg(lambda values: float(np.median(np.append(np.zeros(steps - len(values)), values))))
    return known.reindex(names).fillna(0.0)
