"""Rule 34, rank-skew: one rank keeps the others waiting.
Detected: in a replay without waits between ranks, the slowest rank takes longer than the median of the others. In
this replay, a rank begins the transfer of a collective as soon as it reaches the collective, without waiting.
Where devices recorded which rank they wait for, and this rank was not read, these waits are detected instead.
Predicted: nothing, because the recording does not show why the rank is slow. The evidence names the events that take
longer than on the other ranks. The fix spreads items over the ranks by size, if the slow rank has larger inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput
from perfkit_core.advice.transfers import elements
from perfkit_core.base.algorithms import intervals
from perfkit_core.base.algorithms.arrays import NO_ROW
from perfkit_core.base.language.messages import message
from perfkit_core.replay.graph import MEETING, play
from perfkit_core.trace.model.schema import DATALOADER, OPERATOR, STEP
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.communication import stragglers
from perfkit_core.views.communication.instances import communication
from perfkit_core.views.select import ranks
from perfkit_core.views.steps.activity import activities

_LOADING: Final = "data loading"
_MATTERS, _AT_MOST = 0.1, 1.1
"""Events are named if they are longer by a share of the skew between these."""
_MOST: Final = 3
_LARGER: Final = 1.05
"""The slow rank has larger inputs if they have this many times the elements of the median of the others."""


def find(facts: RuleInput) -> list[Candidate]:
    """Return advice on the slowest rank if its step time without waits exceeds the median of the others."""
    unread = _unread(facts)
    if unread is not None:
        return [unread]
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
    others = by_rank.drop(slow)
    skew = float(by_rank[slow] - others.median())
    if not facts.exceeds(skew, facts.thresholds.skew_share):
        return []
    slowest = int((times.loc[times.groupby("step")["alone_ns"].idxmax(), "rank"] == slow).sum())
    steps = times["step"].nunique()
    longer, event = _longer(facts, slow)
    # the skew is a median, and these are means; what is far longer runs beside other work, and does not explain it
    longer = longer[longer.between(_MATTERS * skew, _AT_MOST * skew)].clip(upper=skew).head(_MOST)
    parts = [message("{event} (+{time:ns})", event=name, time=time) for name, time in longer.items()]
    coincidence = message(
        "a coincidence: rank {slow} is slowest in {slowest} of {steps} steps",
        slow=slow, slowest=slowest, steps=steps,
    )  # fmt: skip
    usual = (
        message("rank {number}", number=others.index[0]) if len(others) == 1 else message("the median of the others")
    )
    return [Candidate(
        message(
            "Without waits for other ranks, a step takes {skew:ns} longer on rank {slow} than on {others}{longer}.",
            slow=slow, skew=skew, others=usual, longer=message(": {parts:and}", parts=parts) if parts else None,
        ),
        evidence={
            "slow_rank": slow, "skew_ns": round(skew), "skew_ratio": skew / facts.step_ns, "slowest_in_steps": slowest,
            "steps": steps, "ranks": len(by_rank), "step_ns": facts.step_ns,
            "longer": {f"{name}_ns": round(time) for name, time in longer.items()},
        },
        rows=event.index[event.isin(longer.index)].to_numpy(),
        method="none",
        ceiling_ns=round(float(by_rank[slow] - others.max())),  # then the next rank is the slowest
        preconditions=(
            message("the collectives in which ranks wait for each other were matched across ranks"),
            message("these collectives align the clocks of the ranks"),
        ),
        vetoes=(coincidence,),
        fill={"rank": str(slow)},
        words={"late": "larger" if _has_larger_inputs(facts.trace, slow) else "unknown"},
    )]  # fmt: skip


def _unread(facts: RuleInput) -> Candidate | None:
    """Return advice on the rank that was not read and for which devices wait longest while they compute nothing, None
    if these waits are short."""
    trace, waits = facts.trace, stragglers.awaited(facts.trace)
    rows = np.flatnonzero(~np.isin(waits.rank, [NO_ROW, *ranks(trace)]))
    if not len(rows) or not facts.has_steps:
        return None
    others, at = np.unique(waits.rank[rows], return_inverse=True)
    late = int(others[np.bincount(at, (waits.end_ns - waits.start_ns)[rows]).argmax()])
    rows = rows[waits.rank[rows] == late]
    steps = np.flatnonzero(trace.host & trace.rows("kind", STEP))
    wait_ns = np.zeros(len(steps), np.int64)
    for rank in np.unique(trace.ints("rank")[rows]).tolist():
        mine, here = rows[trace.ints("rank")[rows] == rank], trace.ints("rank")[steps] == rank
        alone = intervals.union(waits.start_ns[mine], waits.end_ns[mine])
        alone = intervals.subtract(alone, activities(trace).of(trace, rank).compute)
        wait_ns[here] = intervals.covered_ns(alone, trace.ints("start_ns")[steps[here]], trace.end_ns[steps[here]])
    waited = float(np.median(wait_ns))
    if not facts.exceeds(waited, facts.thresholds.skew_share):
        return None
    return Candidate(
        message(
            "In collectives, devices wait for rank {late}, which was not read, for {time} ({share:ratio}) while they "
            "compute nothing.",
            late=late, time=facts.of_step(waited), share=waited / facts.step_ns,
        ),
        evidence={"slow_rank": late, "wait_ns": round(waited), "wait_ratio": waited / facts.step_ns,
                  "waiting_ranks": len(np.unique(trace.ints("rank")[rows])), "step_ns": facts.step_ns},
        rows=rows,
        method="none",
        ceiling_ns=round(waited),
        preconditions=(message("the devices recorded for which rank each collective waits"),),
        fill={"rank": str(late)},
        words={"late": "unread"},
    )  # fmt: skip


def _alone_ns(facts: RuleInput) -> pd.DataFrame:
    """Return one row per step of each rank. ``alone_ns`` is the time of the step without waits for other ranks."""
    graph = facts.replay.graph
    graph = replace(graph, edges=graph.edges.only(graph.edges.cause != MEETING))
    time = facts.steps.played_ns(play(graph))
    return pd.DataFrame({"rank": facts.steps.rank, "step": facts.steps.number, "alone_ns": time})


def _has_larger_inputs(trace: Trace, slow: int) -> bool:
    """Return whether the operators of a rank have larger inputs than those of the others. False without shapes."""
    rows = np.flatnonzero(trace.rows("kind", OPERATOR) & (trace.ints("step") >= 0))
    count = pd.Series(np.maximum(elements(trace, rows), 0)).groupby(trace.ints("rank")[rows]).sum()
    return slow in count.index and count[slow] > _LARGER * count.drop(slow).median()


def _longer(facts: RuleInput, slow: int) -> tuple[pd.Series, pd.Series]:
    """Return by how many ns per step the events with each name take longer on the slow rank than on the median of the
    others, the most first, and the names of the rank's rows. Waits and communication are left out."""
    trace, graph, communicates = facts.trace, facts.replay.graph, communication(facts.trace)
    chosen = ~communicates.device & (communicates.call < 0) & (trace.ints("step") >= 0)
    nodes = np.flatnonzero(graph.row >= 0)
    nodes = nodes[chosen[graph.row[nodes]]]
    row, names = graph.row[nodes], trace.codes("name")
    loading = (trace.rows("kind", DATALOADER) | trace.rows("phase", DATALOADER))[row]
    events = pd.DataFrame({
        "rank": trace.ints("rank")[row], "dur_ns": graph.dur_ns[nodes],
        "event": np.where(loading, _LOADING, np.array(names.values, object)[names.codes[row]]),
    }, index=row)  # fmt: skip
    steps = pd.Series(facts.steps.rank).value_counts()
    busy = events.groupby(["event", "rank"])["dur_ns"].sum().unstack(fill_value=0).reindex(columns=steps.index)
    busy = busy.fillna(0) / steps
    longer = (busy[slow] - busy.drop(columns=slow).median(axis=1)).sort_values(ascending=False, kind="stable")
    return longer, events.loc[events["rank"] == slow, "event"]
