"""Rule 36, outlier-steps: some steps take much longer than the others.
Detected: steps that take more than ``outlier_sigmas`` standard deviations longer than the median step of their rank.
Predicted: nothing, because the recording does not contain the cause."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput, numbered_steps
from perfkit_core.base.algorithms import arrays, sample_statistics
from perfkit_core.base.algorithms.arrays import filled
from perfkit_core.base.language.messages import message, plural
from perfkit_core.replay.batches import waited
from perfkit_core.trace.model.schema import STEP
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.grouping import called

_OUTSIDE: Final = "time outside all recorded events"
"""In tables of event names, this name stands for the self time of steps."""
_MOST: Final = 3
_LEAST_GROWTH_SHARE: Final = 0.1


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_steps()
    steps = pd.DataFrame({"rank": facts.steps.rank, "step": facts.steps.number, "dur_ns": facts.usual_ns})
    if steps.groupby("rank").size().max() < sample_statistics.LEAST_TIMES:
        raise NotEvaluableError(
            message(
                "fewer than {least} steps were recorded, so the usual step time is unknown",
                least=sample_statistics.LEAST_TIMES,
            )
        )
    limits = facts.thresholds
    is_late = steps.groupby("rank")["dur_ns"].transform(
        lambda ns: sample_statistics.outlying(ns.to_numpy(), limits.outlier_sigmas, limits.outlier_share)
    )
    late = steps[is_late.astype(bool)]
    return [_late(facts, steps, late)] if len(late) else []


def _late(facts: RuleInput, steps: pd.DataFrame, late: pd.DataFrame) -> Candidate:
    usual = steps.drop(late.index)["dur_ns"].median()
    longer = float(late["dur_ns"].mean() - usual)
    growth, grew = _growth_ns(facts, steps, late), None
    if not growth.empty:
        parts = [
            message(
                "{name} (+{time:ns})", time=int(size),
                name=message("time outside all recorded events") if name == _OUTSIDE else str(name),
            )
            for name, size in growth.items()
        ]  # fmt: skip
        grew = message("; these events take longer, summed over threads and streams: {parts:list}", parts=parts)
    named = numbered_steps(numbers := late["step"].unique().tolist())
    outside = not growth.empty and growth.index[0] == _OUTSIDE
    what = plural(
        "{n} of {count} steps takes {longer:ns} longer than the usual {usual:ns}: {steps}{growth}.",
        "{n} of {count} steps take on average {longer:ns} longer than the usual {usual:ns}: {steps}{growth}.",
        len(numbers), count=steps["step"].nunique(), longer=longer, usual=usual, steps=named, growth=grew,
    )  # fmt: skip
    if outside and len(numbers) == 1:
        what = message(
            "Once, in {steps}, the time without recorded events is {time:ns} longer than in the other steps: the step "
            "takes {longer:ns} longer than the usual {usual:ns}.",
            steps=named, time=int(growth.iloc[0]), longer=longer, usual=usual,
        )  # fmt: skip
    return Candidate(
        what,
        evidence={
            "steps": numbers, "longer_ns": round(longer), "usual_step_ns": round(usual),
            "grown_ns": {str(name): int(size) for name, size in growth.items()},
        },
        rows=_rows(facts, late),
        method="none",
        preconditions=(message(
            "the steps are more than {sigmas:g} standard deviations above the median",
            sigmas=facts.thresholds.outlier_sigmas,
        ),),
        words={"outliers": ("once" if len(numbers) == 1 else "outside") if outside else "events"},
    )  # fmt: skip


def _growth_ns(facts: RuleInput, steps: pd.DataFrame, late: pd.DataFrame) -> pd.Series[int]:
    """Return the growth in ns of up to three event names, the largest growth first.

    ``steps`` contains all steps, and ``late`` contains those that take too long. The growth is the mean time in late
    steps minus the median time in all other steps. The time is work on the host, work on devices and waits for batches,
    without other waits."""
    trace, graph = facts.trace, facts.replay.graph
    nodes = np.flatnonzero(graph.row >= 0)
    busy = filled(len(trace), 0)
    np.add.at(busy, graph.row[nodes], graph.dur_ns[nodes])
    waiting, waited_ns = waited(graph)
    np.add.at(busy, graph.row[waiting], waited_ns)
    time = _by_name(trace, busy > 0, busy)
    is_late = _within(time, late)
    after = time[is_late].groupby("name", observed=True)["time"].sum() / len(late)
    usual_steps = steps.drop(late.index)
    usual = time[~is_late & _within(time, usual_steps)].groupby("name", observed=True)["time"]
    # a step in which no event has this name counts as 0 ns
    before = usual.agg(lambda values: float(np.median(np.append(np.zeros(len(usual_steps) - len(values)), values))))
    growth = (after - before.reindex(after.index).fillna(0.0)).round().astype("int64")
    growth = growth.sort_values(ascending=False, kind="stable")
    return growth[growth > _LEAST_GROWTH_SHARE * growth.clip(lower=0).sum()].head(_MOST)


def _rows(facts: RuleInput, steps: pd.DataFrame) -> arrays.IntArray:
    trace = facts.trace
    rows = np.flatnonzero(trace.host & trace.rows("kind", STEP) & (facts.replay.first >= 0))
    return rows[_within(pd.DataFrame({"rank": trace.ints("rank")[rows], "step": trace.ints("step")[rows]}), steps)]


def _by_name(trace: Trace, chosen: arrays.BoolArray, time: arrays.IntArray) -> pd.DataFrame:
    """Return the sum of ``time`` of the ``chosen`` events for each rank, step and name. Only events in steps count."""
    rows = np.flatnonzero(chosen & (trace.ints("step") >= 0))
    names = trace.codes("name")
    distinct, texts = pd.factorize(np.array([*map(called, names.values), _OUTSIDE], dtype=object))
    code = distinct[np.where(trace.rows("kind", STEP)[rows], len(names.values), names.codes[rows])]
    keys = {"rank": trace.ints("rank")[rows], "step": trace.ints("step")[rows], "code": code}
    sums = pd.DataFrame({**keys, "time": time[rows]}).groupby(list(keys), as_index=False)["time"].sum()
    name = pd.Categorical.from_codes(sums["code"], pd.Index(texts))
    named: pd.DataFrame = sums.assign(name=name)
    return named


def _within(time: pd.DataFrame, steps: pd.DataFrame) -> arrays.BoolArray:
    keys = pd.MultiIndex.from_frame(steps[["rank", "step"]])
    mask: arrays.BoolArray = pd.MultiIndex.from_frame(time[["rank", "step"]]).isin(keys)
    return mask
