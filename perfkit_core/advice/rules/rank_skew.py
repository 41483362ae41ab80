"""Rule 34, rank-skew: one rank keeps the others waiting.
Detected: in a replay without waits between ranks, the slowest rank takes longer than the median rank. In this replay,
a rank begins the transfer of a collective as soon as it reaches the collective, without waiting for the other ranks.
Predicted: the step time if one part of the slow rank's steps takes the time of the median rank. The part is device
work, data loading or host work, whichever explains the difference best."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.advice.rule_input import Assumption, Candidate, NotEvaluableError, RuleInput
from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.base.language.messages import message
from perfkit_core.replay.graph import MEETING, play
from perfkit_core.replay.transforms import Quantity, Scale, Transform, transformed
from perfkit_core.trace.model.schema import DATALOADER
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.communication.instances import communication
from perfkit_core.views.select import ranks

DEVICE, LOADING, HOST = "device", "loading", "host"
_MOST_OF_IT: Final = {
    DEVICE: message(", mostly in device work"),
    LOADING: message(", mostly in data loading"),
    HOST: message(", mostly in host work"),
}
_WORTH: Final = 0.25
"""A part of the step explains the skew if it causes at least this share of the skew."""
_SOURCE: Final = message(
    "best: the slow rank becomes as fast as the fastest rank; likely: as fast as the median rank; "
    "worst: halfway to the median rank"
)


@dataclass(frozen=True, slots=True)
class _Reason:
    part: str
    own_ns: float
    usual_ns: float
    transform: Scale
    saved_ns: float


def find(facts: RuleInput) -> list[Candidate]:
    """Return advice on the slowest rank if its step time without waits exceeds the step time of the median rank."""
    if len(ranks(facts.trace)) < 2:
        raise NotEvaluableError(message("only one rank was recorded"), message("give the recordings of several ranks"))
    facts.need_steps()
    if facts.trace.meta.incomplete:  # a truncated file of torch lacks kernels, which are written last
        raise NotEvaluableError(
            message("the recording of a rank is cut off, so the rank cannot be compared with the others")
        )
    if not facts.replay.tied:
        raise NotEvaluableError(message("no collectives were matched across ranks, so waits between ranks are unknown"))
    times = _alone_ns(facts)
    by_rank = times.groupby("rank")["alone_ns"].median()
    slow = int(by_rank.index[int(by_rank.to_numpy().argmax())])
    skew = float(by_rank.max() - by_rank.median())
    if not facts.exceeds(skew, facts.thresholds.skew_share):
        return []
    slowest = int((times.loc[times.groupby("step")["alone_ns"].idxmax(), "rank"] == slow).sum())
    steps = times["step"].nunique()
    evidence: dict[str, Any] = {
        "slow_rank": slow, "skew_ns": round(skew), "skew_ratio": skew / facts.step_ns, "slowest_in_steps": slowest,
        "steps": steps, "ranks": times["rank"].nunique(), "step_ns": facts.step_ns,
    }  # fmt: skip
    reasons = [reason for part in _MOST_OF_IT if (reason := _reason(facts, times, slow, part)) is not None]
    best = max(reasons, key=lambda reason: reason.saved_ns, default=None)
    if best is not None and best.saved_ns < _WORTH * skew:
        best = None
    if best is not None:
        evidence |= {"part": best.part, "part_ns": round(best.own_ns), "median_part_ns": round(best.usual_ns)}
    coincidence = message(
        "a coincidence: rank {slow} is slowest in {slowest} of {steps} steps",
        slow=slow, slowest=slowest, steps=steps,
    )  # fmt: skip
    return [Candidate(
        message(
            "Without waits for other ranks, a step takes {skew:ns} longer on rank {slow} than on the median "
            "rank{part}.",
            slow=slow, skew=skew, part=None if best is None else _MOST_OF_IT[best.part],
        ),
        evidence=evidence,
        rows=_rows_of(facts.trace, slow, HOST if best is None else best.part),
        method="none" if best is None else "replay",
        transforms=() if best is None else (best.transform,),
        ceiling_ns=round(skew),
        preconditions=(
            message("the collectives in which ranks wait for each other were matched across ranks"),
            message("these collectives align the clocks of the ranks"),
        ),
        vetoes=(coincidence,),
        assumptions=() if best is None else (Assumption("factor", best.transform.factor, _SOURCE),),
        fill={"rank": str(slow)},
    )]  # fmt: skip


def _alone_ns(facts: RuleInput, *changes: Transform) -> pd.DataFrame:
    """Return one row per step of each rank. ``alone_ns`` is the time of the step without waits for other ranks."""
    graph = transformed(facts.replay, changes)
    graph = replace(graph, edges=graph.edges.only(graph.edges.cause != MEETING))
    time = facts.steps.played_ns(play(graph))
    return pd.DataFrame({"rank": facts.steps.rank, "step": facts.steps.number, "alone_ns": time})


def _reason(facts: RuleInput, times: pd.DataFrame, slow: int, part: str) -> _Reason | None:
    """Return the saving if the slow rank takes the median rank's time for ``part``. None if its time is not longer."""
    trace, graph = facts.trace, facts.replay.graph
    # for each rank: time that ``part`` takes per step, as the mean over the steps, without waits
    chosen = np.zeros(len(trace), np.bool_)
    chosen[_rows_of(trace, None, part)] = True
    nodes = np.flatnonzero(graph.row >= 0)
    nodes = nodes[chosen[graph.row[nodes]]]
    total = pd.Series(graph.dur_ns[nodes]).groupby(trace.ints("rank")[graph.row[nodes]]).sum()
    steps = pd.Series(facts.steps.rank).value_counts()
    busy = total.reindex(steps.index).fillna(0) / steps
    most, usual = float(busy[slow]), float(busy.median())
    if most <= usual:
        return None
    mid = usual / most
    transform = Scale(
        _rows_of(trace, slow, part), Quantity(float(busy.min()) / most, mid, (1 + mid) / 2, _SOURCE), below=False
    )
    mine = times["rank"] == slow
    saved = times.loc[mine, "alone_ns"].median() - _alone_ns(facts, transform).loc[mine, "alone_ns"].median()
    return _Reason(part, most, usual, transform, float(saved))


def _rows_of(trace: Trace, rank: int | None, part: str) -> IntArray:
    """Return the rows of one part of the steps: device work, data loading or host work. Communication is left out. If
    ``rank`` is None, return the rows of all ranks."""
    communicates = communication(trace)
    loading = trace.rows("kind", DATALOADER) | trace.rows("phase", DATALOADER)
    on_host = trace.host & (trace.ints("self_ns") >= 0)
    mask = {DEVICE: ~trace.host, LOADING: on_host & loading, HOST: on_host & ~loading}[part]
    mask = mask & ~communicates.device & (communicates.call < 0) & (trace.ints("step") >= 0)
    return np.flatnonzero(mask if rank is None else mask & (trace.ints("rank") == rank))
