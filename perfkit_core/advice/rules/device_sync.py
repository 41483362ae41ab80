"""Rule 7, device-sync: the host waits until a device has finished all its work.
Detected: calls within a step that synchronise a whole device, if work is launched before and after them.
Predicted: the step time without these calls. Device work takes as long as before."""

from __future__ import annotations

from perfkit_core.advice import operators, transfers
from perfkit_core.advice.rule_input import Candidate, RuleInput
from perfkit_core.base.language.messages import message
from perfkit_core.replay import transforms, waits
from perfkit_core.trace.model.schema import SYNC


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_device()
    facts.need_steps()
    trace, launched_by = facts.trace, facts.trace.ints("launched_by")
    calls, scope = waits.sync_calls(trace)
    rows = calls[(scope == waits.DEVICE) & trace.rows("kind", SYNC)[calls] & (trace.ints("step")[calls] >= 0)]
    # before the first launch in a step, the host waits for work from before; after the last one, for the end
    launches = trace.ints("start_ns")[launched_by[launched_by >= 0]]
    in_steps = trace.ints("start_ns")[launched_by[(launched_by >= 0) & facts.in_steps]]
    if not len(in_steps):
        return []
    at = trace.ints("start_ns")[rows]
    rows = rows[(at > in_steps.min()) & (at < launches.max())]
    spent, waited = facts.mean_ns(rows), facts.per_step(int(facts.waiting_ns[rows].sum()))
    if not facts.exceeds(spent, facts.thresholds.sync_share):
        return []
    call = operators.name_of(trace, rows[0])
    unexplained = transfers.unexplained_ns(facts, rows)
    changes: tuple[transforms.Transform, ...] = (transforms.Remove(rows, below=False),)
    if unexplained.any():
        changes += (transforms.Insert(rows, unexplained),)
    return [Candidate(
        message(
            "For {time}, the host waits in {call} until the device has finished all work, and launches nothing.",
            call=call, time=facts.of_step(spent),
        ),
        evidence={
            "calls_per_step": facts.per_step(len(rows)), "call_ns": round(spent), "waiting_ns": round(waited),
            "step_ns": facts.step_ns,
        },
        rows=rows,
        transforms=changes,
        ceiling_ns=transfers.wait_ceiling_ns(facts, spent - waited),
        share_ns=round(spent),
        preconditions=(message("the call lies within a step"), message("work is launched after the call")),
        risks=(message("If the program needs this call to measure times, keep the call in a few steps only."),),
        fill={"call": call},
    )]  # fmt: skip
