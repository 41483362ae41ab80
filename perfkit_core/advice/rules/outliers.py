"""Rule 36: some steps take much longer than the others, or the device's clock drops while it trains."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Candidate, NotEvaluableError
from perfkit_core.advice.rules.growth import OUTSIDE, grown, longer_kernels
from perfkit_core.advice.rules.phrases import millis, numbered, verb
from perfkit_core.language import say
from perfkit_core.outlying import LEAST_TIMES, outlying
from perfkit_core.plugins.contracts import Rule
from perfkit_core.schema import STEP
from perfkit_core.trace import IntArray


def outliers(facts: Facts) -> list[Candidate]:
    """Rule 36: late steps, and kernels that all become slower by one factor."""
    facts.need_steps()
    steps = pd.DataFrame({"rank": facts.steps.rank, "step": facts.steps.number, "dur_ns": facts.steps.recorded_ns})
    if steps.groupby("rank").size().max() < LEAST_TIMES:
        raise NotEvaluableError(
            say(
                "fewer than {least_steps} steps were recorded: nothing tells what is usual",
                least_steps=LEAST_TIMES,
            )
        )
    late = steps[_is_late(facts, steps)]
    found = [_late(facts, steps, late)] if len(late) else []
    return found + _slower_clock(facts, steps)


def _is_late(facts: Facts, steps: pd.DataFrame) -> pd.Series[bool]:
    """Each step among those of its rank."""
    limits = facts.thresholds
    of_rank = steps.groupby("rank")["dur_ns"]
    found = of_rank.transform(lambda ns: outlying(ns.to_numpy(), limits.outlier_sigmas, limits.outlier_share))
    return found.astype(bool)


def _late(facts: Facts, steps: pd.DataFrame, late: pd.DataFrame) -> Candidate:
    usual = steps.drop(late.index)["dur_ns"].median()
    more = float(late["dur_ns"].mean() - usual)
    why = grown(facts.replay, steps, late)
    numbers = late["step"].unique().tolist()
    return Candidate(
        say(
            "{late} of {count} {verb} {more} ms longer than the usual {usual} ms: {steps}{why}",
            late=len(late),
            count=len(steps),
            verb=verb(len(late), "steps takes", "steps take"),
            more=millis(more),
            usual=millis(usual),
            steps=numbered(numbers),
            why=_because(why),
        ),
        evidence={
            "steps": numbers, "longer_ns": round(more), "usual_step_ns": round(usual),
            "grown_ns": {str(name): int(size) for name, size in why.items()},
        },
        rows=_rows(facts, late),
        method="none",
        preconditions=(say(
            "more than {outlier_sigmas:g} standard deviations above the median",
            outlier_sigmas=facts.thresholds.outlier_sigmas,
        ),),
        words={"outliers": _kind(why)},
    )  # fmt: skip


def _slower_clock(facts: Facts, steps: pd.DataFrame) -> list[Candidate]:
    """All kernels take longer in the last third of the steps than in the first, by one factor."""
    order = steps.sort_values(["rank", "step"])
    place = order.groupby("rank").cumcount() / order.groupby("rank")["step"].transform("size")
    early, late = order[place < 1 / 3], order[place >= 2 / 3]
    found = longer_kernels(facts.trace, early, late)
    if found is None or found.factor - 1 <= facts.thresholds.clock_share:
        return []
    return [
        Candidate(
            say(
                "the same {kernels} kernels take {factor:.2f} times as long in the last third of the steps as in "
                "the first: the device's clock fell, or something else uses the device",
                kernels=found.kernels,
                factor=found.factor,
            ),
            evidence={"factor": found.factor, "kernels": found.kernels, "agreeing_ratio": found.agreeing},
            rows=_rows(facts, late),
            method="none",
            preconditions=(
                say("the same kernels run equally often in both"),
                say("they grew by one factor: a clock, not a kernel"),
            ),
            vetoes=(say("inputs grew: the kernels' own names and counts did not change"),),
            fill={"outliers": "clock"},  # another finding than late steps, which are shown by steps, too
            words={"outliers": "clock"},
        )
    ]


def _rows(facts: Facts, chosen: pd.DataFrame) -> IntArray:
    """The events of the steps themselves."""
    trace = facts.trace
    wanted = pd.MultiIndex.from_frame(chosen[["rank", "step"]])
    rows = np.flatnonzero(trace.host & trace.rows("kind", STEP) & (facts.replay.first >= 0))
    keys = pd.MultiIndex.from_arrays([trace.ints("rank")[rows], trace.ints("step")[rows]])
    return rows[keys.isin(wanted)]


def _kind(why: pd.Series[int]) -> str:
    """Whether events grew, or the time in which nothing was recorded."""
    return "outside" if not why.empty and why.index[0] == OUTSIDE else "events"


def _because(why: pd.Series[int]) -> str:
    if why.empty:
        return ""
    named = [(say(OUTSIDE) if name == OUTSIDE else name, size) for name, size in why.items()]
    grown = say(", ").join(f"{name} (+{millis(size)} ms)" for name, size in named)
    return say("; longer are, over all threads and streams, {grown}", grown=grown)


RULES: Final = (Rule("outlier-steps", 36, 1, "Find out why some steps are slow", outliers),)
