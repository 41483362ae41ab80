"""Rule 44, save-each-step: every step writes a checkpoint, a log or statistics, and the training waits for it.
Detected: time in which no operator runs, and in which the sampled Python frames write checkpoints, logs or statistics.
Predicted: the step time if only one of ``save_every`` steps does so."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.advice.facts import Candidate, Facts, NotEvaluableError, assume
from perfkit_core.advice.frames import frames
from perfkit_core.advice.gaps import idle_gaps
from perfkit_core.language.messages import message
from perfkit_core.replay.transforms import Quantity, Shorten

_LEFT: Final = Quantity(0.0, 0.03, 0.2, message("estimate: every hundredth to every fifth step still does it"))
_MOST: Final = 0.5
"""Reporting must occur in more than this share of the steps."""


def find(facts: Facts) -> list[Candidate]:
    facts.need_steps()
    sampled = frames(facts.trace)
    if not len(sampled):
        raise NotEvaluableError(
            message("no Python frames were sampled"),
            message("use the schedule or the callbacks of perfkit, which sample them while they record"),
        )
    gaps = idle_gaps(facts)
    start, end = gaps[facts.rank]
    at = np.searchsorted(start, sampled.at_ns, side="right") - 1
    inside = sampled.inside((start, end))
    # share: of the samples in each gap, how many write something
    every = np.bincount(at[inside], minlength=len(start))
    writing = np.bincount(at[inside & sampled.reports], minlength=len(start))
    kept = writing > every / 2
    rank_gaps = start[kept], end[kept]
    spent_ns = facts.within_steps(rank_gaps)
    total = float(spent_ns.mean()) if len(spent_ns) else 0.0
    if not facts.exceeds(total, facts.thresholds.save_share) or (spent_ns > 0).mean() <= _MOST:
        return []
    lines = sampled.most_common(inside & sampled.reports)
    place = lines[0][0] if lines else None
    recorded = facts.steps.recorded_ns[facts.mine]
    return [Candidate(
        message(
            "Every step spends {time} on writing checkpoints, logs or statistics{place}.", time=facts.of_step(total),
            place=message(", most of it at {place}", place=place) if place else "",
        ),
        evidence={**facts.part("writing", total), "lines": [line for line, _ in lines[:3]]},
        transforms=(Shorten({facts.rank: rank_gaps}, _LEFT),),
        ceiling_ns=int(facts.typical(recorded)) - int(facts.typical(recorded - spent_ns)),
        share_ns=round(total),
        preconditions=(message("no thread runs an operator meanwhile"),),
        assumptions=assume(remaining_factor=_LEFT),
        risks=(message("What happens between two reports is not seen. After a crash, more steps are repeated."),),
        conflicts=("host-gap",),
        place=place,
    )]  # fmt: skip
