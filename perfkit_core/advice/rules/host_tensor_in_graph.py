"""Rule 2, host-tensor-in-graph: compiled or captured code copies numbers from the host in every run.
Detected: compiled or captured code that launches small copies to the device, each of at most ``tiny_bytes``.
Predicted: the step time without the copies and the waits for them. In the worst case, only the waits are removed."""

from __future__ import annotations

from perfkit_core.advice import operators, transfers
from perfkit_core.advice.rule_input import Candidate, RuleInput
from perfkit_core.base.algorithms import nesting
from perfkit_core.base.language.messages import message
from perfkit_core.replay.transforms import Case, InCases, Remove, Unblock
from perfkit_core.views.operators import compiled


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_device()
    parent, regions = facts.trace.ints("parent"), compiled.regions(facts.trace)
    copies = transfers.transfers(facts)
    few = (copies.bytes >= 0) & (copies.bytes <= facts.thresholds.tiny_bytes)
    copies = copies.only(~copies.to_host & few & nesting.lies_in(parent, regions)[copies.call])
    if not len(copies):
        return []
    region = operators.name_of(facts.trace, nesting.outermost(parent, regions)[copies.call[0]])
    spent, count = facts.mean_ns(copies.everything), facts.per_step(len(copies))
    return [Candidate(
        facts.plural(
            "{region} copies {count:count} number from the host to the device {per_step}. This takes {time}, and "
            "prevents the capture of {region} as a graph.",
            "{region} copies {count:count} numbers from the host to the device {per_step}. This takes {time}, and "
            "prevents the capture of {region} as a graph.",
            count, region=region, time=facts.of_step(spent),
        ),
        evidence={"copies_per_step": count, "copies_ns": round(spent), "step_ns": facts.step_ns, "region": region},
        rows=copies.owner,
        transforms=(
            Unblock(copies.call), Remove(copies.syncs, below=False),
            InCases(Remove(copies.everything), (Case.SHORT, Case.LIKELY)),
        ),
        preconditions=(message("few bytes are copied"), message("the copy is launched inside compiled code")),
        risks=(message("If a number becomes a constant of compiled code, every new value causes a recompilation."),),
        direction="to device",
        fill={"region": region},
    )]  # fmt: skip
