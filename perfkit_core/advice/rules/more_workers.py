"""Rule 13, more-workers: the training waits for batches although worker processes make them.
Detected: waits of more than ``loader_share`` of the step. The time to fetch a batch that is ready is not a wait.
Predicted: the step time if batches arrive more often: at best twice as often."""

from __future__ import annotations

from typing import Final

from perfkit_core.advice.rule_input import Candidate, RuleInput, assume
from perfkit_core.advice.rules.loader_workers import HANDOVER_NS, cores_text
from perfkit_core.base.language.messages import message
from perfkit_core.replay import batches, transforms

_FASTER: Final = transforms.Quantity(
    0.5, 0.55, 1.0, message("estimate: twice as many workers are up to twice as fast if cores are free")
)


def find(facts: RuleInput) -> list[Candidate]:
    rows, waiting = facts.batch_rows, facts.typical(facts.waited_ns)
    if not batches.in_workers(facts.trace, rows).any() or not facts.exceeds(waiting, facts.thresholds.loader_share):
        return []
    each_ns = facts.step_ns / facts.batches_per_step
    batch = transforms.Quantity(each_ns * _FASTER.low, each_ns * _FASTER.mid, each_ns * _FASTER.high, _FASTER.source)
    times = {"waiting": waiting, "step": facts.step_ns}
    what = message(
        "Each step waits {waiting:ns} of {step:ns} for a batch, although worker processes make the batches.", **times
    )
    if facts.period > 1:
        what = message(
            "One step in {period:count} waits for a batch, although worker processes make the batches: {waiting:ns} of "
            "{step:ns} per step on average.",
            period=facts.period, **times,
        )  # fmt: skip
    machine = message("the number of cores was not recorded")
    if facts.cores is not None:
        machine = message("there are {cores}", cores=cores_text(facts.cores))
    return [Candidate(
        what,
        evidence=facts.part("loader", waiting),
        rows=rows,
        transforms=(transforms.Load(rows, 1, batch_ns=batch, handover_ns=HANDOVER_NS),),
        ceiling_ns=round(waiting),
        preconditions=(message("worker processes make the batches"),),
        assumptions=assume(batch_every_ns=batch, handover_ns=HANDOVER_NS),
        risks=(message("More workers than cores slow each other down; {machine}.", machine=machine),),
        fill={"workers": "twice as many"},
    )]  # fmt: skip
