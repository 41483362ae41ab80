"""Rule 5, cpu-fallback: an operator runs on the host, so its inputs are copied to the host and its outputs back.
Detected: a copy to the host, computation on the host, and a copy of equal size back to the device. Each copy has at
least ``fallback_bytes``.
Predicted: the step time if the operators run on the device and the copies are gone."""

from __future__ import annotations

from typing import Final

from perfkit_core.advice import operators, transfers
from perfkit_core.advice.rule_input import Candidate, RuleInput, assume, listed
from perfkit_core.base.language.messages import message, plural
from perfkit_core.replay.transforms import Move, Quantity

_BYTE_NS: Final = Quantity(
    2 / 2000,
    4 / 1000,
    20 / 400,
    message("estimate: the operator reads or writes its data 2 to 20 times at 0.4 to 2 TB/s"),
)


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_device()
    trips = transfers.round_trips(facts, facts.thresholds.fallback_bytes, computing=True)
    if not trips.count:
        return []
    rows = trips.order.row[trips.operators]
    names, size = operators.distinct_names(facts.trace, rows), int(trips.copies.bytes.sum())
    spent, copies = facts.mean_ns(rows), trips.copies_ns(facts)
    launch, device = transfers.launching_ns(facts, trips.order), transfers.on_device_ns(size / 2 / len(rows), _BYTE_NS)
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
        transforms=(Move(rows, False, launch, device, trips.copies.everything),),
        preconditions=(
            message("inputs are copied to the host before the operator runs, and outputs to the device afterwards"),
            message("the copies are large"),
        ),
        assumptions=assume(launch_ns=launch, device_ns=device),
        risks=(message("The device may have no kernel for this operator; another operator must then replace it."),),
        direction="to device",
        fill={"operator": names[0]},
    )]  # fmt: skip
