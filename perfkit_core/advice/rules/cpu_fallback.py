"""Rule 5, cpu-fallback: an operator runs on the host, so its inputs are copied to the host and its outputs back.
Detected: a copy to the host, computation on the host, and a copy of equal size back to the device. Each copy has at
least ``fallback_bytes``.
Predicted: nothing, because how fast the operator runs on the device was measured on no pair of programs. The ceiling is
the time of the operators and copies."""

from __future__ import annotations

from perfkit_core.advice import operators, transfers
from perfkit_core.advice.rule_input import Candidate, RuleInput, listed
from perfkit_core.base.language.messages import message, plural


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_device()
    trips = transfers.round_trips(facts, facts.thresholds.fallback_bytes, computing=True)
    if not trips.count:
        return []
    rows = trips.order.row[trips.operators]
    names, size = operators.distinct_names(facts.trace, rows), int(trips.copies.bytes.sum())
    spent, copies = facts.mean_ns(rows), trips.copies_ns(facts)
    return [Candidate(
        plural(
            "{names} runs on the host for {spent:ns}. The copies of its data to the host and back take {time}.",
            "{names} run on the host for {spent:ns}. The copies of their data to the host and back take {time}.",
            len(names), names=listed(names), spent=spent, time=facts.of_step(copies),
        ),
        evidence={
            "operators": names[:5], "operators_per_step": facts.per_step(len(rows)), "operators_ns": round(spent),
            "copies_ns": round(copies), "bytes_per_step": round(facts.per_step(size)), "step_ns": facts.step_ns,
        },
        rows=rows,
        method="none",
        ceiling_ns=round(min(spent + copies, facts.step_ns)),
        preconditions=(
            message("inputs are copied to the host before the operator runs, and outputs to the device afterwards"),
            message("the copies are large"),
        ),
        risks=(message("The device may have no kernel for this operator; another operator must then replace it."),),
        direction="to device",
        fill={"operator": names[0]},
    )]  # fmt: skip
