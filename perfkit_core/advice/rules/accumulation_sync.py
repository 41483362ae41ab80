"""Rule 33, accumulation-sync: gradients are exchanged more often than the optimizer needs.
Detected: several backward passes before one optimizer step issue the same collectives.
Predicted: nothing, because nobody has compared such a prediction with a measurement. The ceiling comes from a replay
without the needless collectives: the last one still waits for the slowest rank."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.advice.predict import most_ns
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput
from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.base.language.messages import message
from perfkit_core.replay.transforms import Remove
from perfkit_core.trace.model.schema import BACKWARD, FORWARD, OPTIMIZER
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.communication.instances import communication, instances
from perfkit_core.views.select import rows_of_rank

_SUM_GRADIENTS: Final = ("all_reduce", "reduce_scatter")


def find(facts: RuleInput) -> list[Candidate]:
    trace, rows = facts.trace, instances(facts.trace)
    rows = rows[rows["collective"].isin(_SUM_GRADIENTS).to_numpy(np.bool_)]
    if rows.empty:
        return []
    if not (trace.rows("phase", BACKWARD).any() and trace.rows("phase", OPTIMIZER).any()):
        raise NotEvaluableError(message("no optimizer steps or no backward passes were recorded"))
    rows = pd.concat([_with_passes(trace, part, int(rank)) for rank, part in rows.groupby(rows["rank"].fillna(-1))])
    # keep optimizer steps with several backward passes, all of which issue the same collectives
    keys, step = ["rank", "optimizer_step", "pass"], ["rank", "optimizer_step"]
    passes = rows[rows["pass"] >= 0].groupby(keys, dropna=False)["bytes"].agg(["size", "sum", "count"]).reset_index()
    by_step = passes.groupby(step, dropna=False)
    same = (by_step["size"].transform("nunique") == 1) & (by_step["sum"].transform("nunique") == 1)
    repeated = passes[same & (by_step["pass"].transform("size") > 1)]
    if len(repeated) * 2 <= len(passes):
        return []
    number = repeated.groupby(step, dropna=False)["pass"]
    needless = rows.merge(repeated[repeated["pass"] < number.transform("max")][keys], on=keys)
    events = needless["row"].to_numpy(np.int64)
    call = communication(trace).call[events]
    calls = np.unique(np.where(call == NO_ROW, events, call))
    spent, count, size = facts.mean_ns(events), int(number.size().median()), None
    what = message("Gradients are exchanged {count} times per optimizer step, after every backward pass.", count=count)
    if (repeated["count"] == repeated["size"]).all():
        size = int(repeated["sum"].median())
        what = message(
            "Gradients of {size:bytes} are exchanged {count} times per optimizer step, after every backward pass.",
            size=size, count=count,
        )  # fmt: skip
    return [Candidate(
        what,
        evidence={
            "passes": count, "collectives_per_pass": int(repeated["size"].median()), "bytes_per_pass": size,
            "needless_communication_ns": round(spent), "step_ns": facts.step_ns,
        },
        rows=calls,
        method="none",
        ceiling_ns=_ceiling_ns(facts, events, spent),
        preconditions=(
            message("every backward pass issues the same collectives"),
            message("the optimizer runs only after the last backward pass"),
        ),
        vetoes=(message("an optimizer step after every backward pass"),),
        risks=(message("Ranks drift apart until the last backward pass; its collective waits for the slowest rank."),),
        fill={"micro_steps": str(count)},
    )]  # fmt: skip


def _ceiling_ns(facts: RuleInput, events: IntArray, spent: float) -> int:
    if facts.contradiction is not None:
        return round(spent)
    most = most_ns(facts, (Remove(events),))
    return round(spent if most is None else min(spent, most * facts.slowdown))


def _with_passes(trace: Trace, collectives: pd.DataFrame, rank: int) -> pd.DataFrame:
    """Return ``collectives`` with two more columns.

    - ``pass``: a number for the backward pass that issued the collective (-1 if none did)
    - ``optimizer_step``: the number of optimizer steps before the collective"""
    # start: the times at which a forward, backward or optimizer phase begins on the host of the rank
    chosen = trace.host & trace.rows("phase", FORWARD, BACKWARD, OPTIMIZER)
    rows = np.arange(len(trace))[rows_of_rank(trace, rank)]
    rows = rows[chosen[rows]]
    rows = rows[np.argsort(trace.ints("start_ns")[rows], kind="stable")]
    phases = trace.codes("phase")
    code = phases.codes[rows]
    begins = np.flatnonzero(np.diff(code, prepend=-1))
    start, phase = trace.ints("start_ns")[rows[begins]], np.array(phases.values, object)[code[begins]]
    launched_by = trace.ints("launched_by")[collectives["row"].to_numpy(np.int64)]
    issue = np.where(launched_by >= 0, trace.ints("start_ns")[launched_by], collectives["issue_ns"].to_numpy(np.int64))
    at = np.searchsorted(start, issue, side="right") - 1
    is_backward, is_optimizer = np.append(phase == BACKWARD, False), np.append(phase == OPTIMIZER, False)
    number = np.where(is_backward[at] & (at >= 0), at, -1)
    return collectives.assign(**{"pass": number, "optimizer_step": np.cumsum(is_optimizer)[at]})
