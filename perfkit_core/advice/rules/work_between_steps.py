"""Rule 54, work-between-steps: evaluation, rollouts, logging or saving between the steps takes much of the training.
Detected: the clock of a recorded script found that more than a tenth of the time from the first update to the last lies
between the training steps.
Predicted: nothing, because nothing shows how much of this work the training needs. The ceiling is all of its time."""

from __future__ import annotations

from perfkit_core.advice.rule_input import Candidate, RuleInput
from perfkit_core.base.language.messages import message
from perfkit_core.trace.model import timed_steps


def find(facts: RuleInput) -> list[Candidate]:
    works = [work for work in timed_steps.works_between(facts.trace.quality) if 0 < work.share < 1]
    if not works or not facts.step_ns:
        return []
    work = max(works, key=lambda work: work.share)
    each_ns = facts.training.step_ns if work.each else facts.training.step_ns / (1 - work.share)
    return [Candidate(
        message("{text}.", text=work.text()),
        evidence={"between_ratio": work.share, "mean_step_ns": round(each_ns), "function": work.function},
        method="none",
        base_ns=round(each_ns * facts.slowdown),
        ceiling_ns=round(each_ns * work.share * facts.slowdown),
        preconditions=(message("a clock timed the steps and the work between them, without a profiler"),),
        fill={"function": work.function},
        place=work.place or None,
    )]  # fmt: skip
