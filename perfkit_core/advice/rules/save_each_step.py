"""Rule 44, save-each-step: every step writes a checkpoint, a log or statistics, and the training waits for it.
Detected: time in which no operator runs, and in which the sampled Python frames write checkpoints, logs or statistics.
Predicted: the step time if few steps do so."""

from __future__ import annotations

from typing import Final

from perfkit_core.advice.frames import frames
from perfkit_core.advice.gaps import filled
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput, assume
from perfkit_core.base.language.messages import message
from perfkit_core.replay.transforms import Quantity

_LEFT: Final = Quantity(0.0, 0.03, 0.2, message("estimate: at most every fifth step still does it"))


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_steps()
    if not len(frames(facts.trace)):
        raise NotEvaluableError(
            message("no Python frames were sampled"),
            message("use the schedule or the callbacks of perfkit, which sample them while they record"),
        )
    writing = filled(facts, lambda sampled: sampled.reports)
    if writing is None or not facts.exceeds(writing.spent_ns, facts.thresholds.save_share):
        return []
    line = writing.line
    return [Candidate(
        message(
            "Steps spend {time} on writing checkpoints, logs or statistics{place}.",
            time=facts.of_step(writing.spent_ns),
            place=message(", most of it at {place}", place=line) if line else "",
        ),
        evidence={**facts.part("writing", writing.spent_ns), "share_of_gaps": writing.share},
        transforms=(writing.shortened(facts.rank, _LEFT),),
        ceiling_ns=round(writing.spent_ns),
        preconditions=(message("no thread runs an operator meanwhile"),),
        assumptions=assume(remaining_factor=_LEFT),
        risks=(message("What happens between two reports is not seen. After a crash, more steps are repeated."),),
        conflicts=("host-gap",),
        place=line,
    )]  # fmt: skip
