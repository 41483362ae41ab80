"""Rule 34: one rank keeps the others waiting.

How long a rank takes by itself is its step played again without the meetings: each collective transfers as soon as the
rank has come. What a rank waits on its device while its host works on is so no time of its own, nor of the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Assumption, Candidate, NotEvaluableError
from perfkit_core.advice.rules.phrases import millis
from perfkit_core.analyses.communication.communicating import communication
from perfkit_core.analyses.span import ranks
from perfkit_core.language import in_english, say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.edits.contract import Edit, edited
from perfkit_core.replay.edits.durations import Scale
from perfkit_core.replay.graph import MEETING
from perfkit_core.replay.quantity import Quantity
from perfkit_core.replay.simulate import play
from perfkit_core.schema import DATALOADER
from perfkit_core.trace import BoolArray, IntArray, Trace

DEVICE, LOADING, HOST = "device", "loading", "host"
_WORDS: Final = {
    DEVICE: in_english("on its device"),
    LOADING: in_english("loading data"),
    HOST: in_english("on its host"),
}
_WORTH: Final = 0.25
"""Share of the skew that making one part as fast as that of other ranks must save to be called its reason."""


@dataclass(frozen=True, slots=True)
class _Reason:
    """A part of the slow rank's steps that is longer than on the median rank, times in ns a step."""

    part: str
    own_ns: float
    usual_ns: float
    edit: Scale
    saved_ns: float


def skewed(facts: Facts) -> list[Candidate]:
    """Rule 34: without waiting for the others, one rank takes longer than the median of the ranks."""
    if len(ranks(facts.trace)) < 2:
        raise NotEvaluableError(say("one rank only was recorded: name the recordings of several ranks"))
    facts.need_steps()
    if facts.trace.meta.incomplete:  # what is cut off is seldom its end: torch writes kernels behind operators
        raise NotEvaluableError(say("the recording of a rank is cut off: it tells nothing beside the others"))
    if not facts.replay.tied:
        raise NotEvaluableError(
            say("no collectives of several ranks could be matched: nothing tells who waits for whom")
        )
    own = alone_ns(facts)
    by_rank = own.groupby("rank")["alone_ns"].median()
    slow = int(by_rank.index[int(by_rank.to_numpy().argmax())])
    skew = float(by_rank.max() - by_rank.median())
    if skew <= facts.thresholds.skew_share * facts.step_ns:
        return []
    return [_candidate(facts, own, slow, skew)]


def alone_ns(facts: Facts, *edits: Edit) -> pd.DataFrame:
    """A row a step of a rank: rank, step, alone_ns (its time if it waited for no other rank)."""
    graph = edited(facts.replay, edits)
    graph = replace(graph, edges=graph.edges.only(graph.edges.cause != MEETING))
    time = facts.steps.played_ns(play(graph))
    return pd.DataFrame({"rank": facts.steps.rank, "step": facts.steps.number, "alone_ns": time})


def _candidate(facts: Facts, own: pd.DataFrame, slow: int, skew: float) -> Candidate:
    reasons = [reason for part in _WORDS if (reason := _reason(facts, own, slow, part)) is not None]
    best = max(reasons, key=lambda one: one.saved_ns, default=None)
    if best is not None and best.saved_ns < _WORTH * skew:
        best = None
    slowest = int((own.loc[own.groupby("step")["alone_ns"].idxmax(), "rank"] == slow).sum())
    steps, count = own["step"].nunique(), own["rank"].nunique()
    where = "" if best is None else say(", most of it {words}", words=say(_WORDS[best.part]))
    evidence: dict[str, Any] = {
        "slow_rank": slow, "skew_ns": round(skew), "skew_ratio": skew / facts.step_ns, "slowest_in_steps": slowest,
        "steps": steps, "ranks": count, "step_ns": facts.step_ns,
    }  # fmt: skip
    if best is not None:
        evidence |= {"part": best.part, "part_ns": round(best.own_ns), "median_part_ns": round(best.usual_ns)}
    return Candidate(
        say(
            "by itself rank {slow} takes {skew} ms a step longer than the median rank{where}",
            slow=slow,
            skew=millis(skew),
            where=where,
        ),
        evidence=evidence,
        rows=_rows_of(facts.trace, slow, HOST if best is None else best.part),
        method="none" if best is None else "replay",
        edits=() if best is None else (best.edit,),
        ceiling_ns=round(skew),
        preconditions=(
            say("ranks wait for each other in collectives that were matched"),
            say("clocks are aligned by them"),
        ),
        vetoes=(
            say(
                "slow by chance: rank {slow} is the slowest in {slowest} of {steps} steps",
                slow=slow,
                slowest=slowest,
                steps=steps,
            ),
        ),
        assumptions=() if best is None else (Assumption("factor", best.edit.factor, _SOURCE),),
        fill={"rank": str(slow)},
    )


_SOURCE: Final = in_english("recorded: the fastest rank, the median rank, half of the way there")


def _reason(facts: Facts, own: pd.DataFrame, slow: int, part: str) -> _Reason | None:
    """What it would save the rank if a part took what it takes on the median rank; None where it takes no more."""
    busy = _busy_ns(facts, part)
    most, usual = float(busy[slow]), float(busy.median())
    if most <= usual:
        return None
    mid = usual / most
    factor = Quantity(float(busy.min()) / most, mid, (1 + mid) / 2, _SOURCE)
    edit = Scale(_rows_of(facts.trace, slow, part), factor, below=False)
    after = alone_ns(facts, edit)
    mine = own["rank"] == slow
    saved = own.loc[mine, "alone_ns"].median() - after.loc[mine, "alone_ns"].median()
    return _Reason(part, most, usual, edit, float(saved))


def _busy_ns(facts: Facts, part: str) -> pd.Series[float]:
    """Of each rank what the part takes of a step, without waiting."""
    trace, graph = facts.trace, facts.replay.graph
    nodes = np.flatnonzero(graph.row >= 0)
    nodes = nodes[(_part(trace, part) & (trace.ints("step") >= 0))[graph.row[nodes]]]
    total = pd.Series(graph.dur_ns[nodes]).groupby(trace.ints("rank")[graph.row[nodes]]).sum()
    steps = pd.Series(facts.steps.rank).value_counts()
    found: pd.Series[float] = total.reindex(steps.index).fillna(0) / steps
    return found


def _rows_of(trace: Trace, rank: int, part: str) -> IntArray:
    """The events whose time makes a part of a rank's steps."""
    chosen = (trace.ints("rank") == rank) & (trace.ints("step") >= 0)
    return np.flatnonzero(chosen & _part(trace, part))


def _part(trace: Trace, part: str) -> BoolArray:
    """Events of a part: work of devices, what loads data, and what else the host does; communication is none."""
    talk = communication(trace)
    alone = ~talk.device & (talk.call < 0)
    loading = trace.rows("kind", DATALOADER) | trace.rows("phase", DATALOADER)
    on_host = trace.host & (trace.ints("self_ns") >= 0)
    found: BoolArray = alone & {DEVICE: ~trace.host, LOADING: on_host & loading, HOST: on_host & ~loading}[part]
    return found


RULES: Final = (Rule("rank-skew", 34, 1, "Make the slow rank as fast as the others", skewed),)
