"""Rule 34, rank-skew: one rank keeps the others waiting.
Detected: in a replay without waits between ranks, the slowest rank takes longer than the median rank. In this replay,
a rank begins the transfer of a collective as soon as it reaches the collective, without waiting for the other ranks.
Predicted: nothing, because the recording does not show why the rank is slow. The evidence names the part of its steps
that takes longer than on the median rank: device work, data loading or host work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput
from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.base.language.messages import message
from perfkit_core.replay.graph import MEETING, play
from perfkit_core.trace.model.schema import DATALOADER
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.communication.instances import communication
from perfkit_core.views.select import marked, ranks

DEVICE, LOADING, HOST = "device", "loading", "host"
_MOST_OF_IT: Final = {
    DEVICE: message(", mostly in device work"),
    LOADING: message(", mostly in data loading"),
    HOST: message(", mostly in host work"),
}
_WORTH: Final = 0.25
"""A part of the step explains the skew if it is longer by at least this share of the skew."""


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
    parts = {part: _part_ns(facts, slow, part) for part in _MOST_OF_IT}
    longer = max(parts, key=lambda part: parts[part][0] - parts[part][1])
    own_ns, usual_ns = parts[longer]
    best = longer if own_ns - usual_ns >= _WORTH * skew else None
    if best is not None:
        evidence |= {"part": best, "part_ns": round(own_ns), "median_part_ns": round(usual_ns)}
    coincidence = message(
        "a coincidence: rank {slow} is slowest in {slowest} of {steps} steps",
        slow=slow, slowest=slowest, steps=steps,
    )  # fmt: skip
    return [Candidate(
        message(
            "Without waits for other ranks, a step takes {skew:ns} longer on rank {slow} than on the median "
            "rank{part}.",
            slow=slow, skew=skew, part=None if best is None else _MOST_OF_IT[best],
        ),
        evidence=evidence,
        rows=_rows_of(facts.trace, slow, best or HOST),
        method="none",
        ceiling_ns=round(skew),
        preconditions=(
            message("the collectives in which ranks wait for each other were matched across ranks"),
            message("these collectives align the clocks of the ranks"),
        ),
        vetoes=(coincidence,),
        fill={"rank": str(slow)},
    )]  # fmt: skip


def _alone_ns(facts: RuleInput) -> pd.DataFrame:
    """Return one row per step of each rank. ``alone_ns`` is the time of the step without waits for other ranks."""
    graph = facts.replay.graph
    graph = replace(graph, edges=graph.edges.only(graph.edges.cause != MEETING))
    time = facts.steps.played_ns(play(graph))
    return pd.DataFrame({"rank": facts.steps.rank, "step": facts.steps.number, "alone_ns": time})


def _part_ns(facts: RuleInput, slow: int, part: str) -> tuple[float, float]:
    """Return the mean time of a part of the steps without waits, on the slow rank and on the median rank."""
    trace, graph = facts.trace, facts.replay.graph
    chosen = marked(trace, _rows_of(trace, None, part))
    nodes = np.flatnonzero(graph.row >= 0)
    nodes = nodes[chosen[graph.row[nodes]]]
    total = pd.Series(graph.dur_ns[nodes]).groupby(trace.ints("rank")[graph.row[nodes]]).sum()
    steps = pd.Series(facts.steps.rank).value_counts()
    busy = total.reindex(steps.index).fillna(0) / steps
    return float(busy[slow]), float(busy.median())


def _rows_of(trace: Trace, rank: int | None, part: str) -> IntArray:
    """Return the rows of one part of the steps: device work, data loading or host work. Communication is left out. If
    ``rank`` is None, return the rows of all ranks."""
    communicates = communication(trace)
    loading = trace.rows("kind", DATALOADER) | trace.rows("phase", DATALOADER)
    on_host = trace.host & (trace.ints("self_ns") >= 0)
    mask = {DEVICE: ~trace.host, LOADING: on_host & loading, HOST: on_host & ~loading}[part]
    mask = mask & ~communicates.device & (communicates.call < 0) & (trace.ints("step") >= 0)
    return np.flatnonzero(mask if rank is None else mask & (trace.ints("rank") == rank))
