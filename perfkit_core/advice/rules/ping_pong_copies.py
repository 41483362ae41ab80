"""Rule 3, ping-pong-copies: data go to the host and come back unchanged.
Detected: a copy to the host, then a copy of equal size to the device. The host computes nothing between them.
Predicted: the step time without both copies."""

from __future__ import annotations

from perfkit_core.advice.rule_input import Candidate, RuleInput
from perfkit_core.advice.transfers import round_trips
from perfkit_core.base.language.messages import message
from perfkit_core.replay.transforms import Remove


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_device()
    trips = round_trips(facts, facts.thresholds.round_trip_bytes, computing=False)
    if not trips.count:
        return []
    count, spent = facts.per_step(trips.count), trips.copies_ns(facts)
    size = facts.per_step(int(trips.copies.bytes.sum()))
    return [Candidate(
        facts.plural(
            "Data go to the host and come back unchanged: {count:count} round trip {per_step}, with {size:bytes} "
            "copied, takes {time}.",
            "Data go to the host and come back unchanged: {count:count} round trips {per_step}, with {size:bytes} "
            "copied, take {time}.",
            count, size=size, time=facts.of_step(spent),
        ),
        evidence={
            "round_trips_per_step": count, "bytes_per_step": round(size), "copies_ns": round(spent),
            "step_ns": facts.step_ns,
        },
        rows=trips.copies.owner,
        transforms=(Remove(trips.copies.everything),),
        preconditions=(
            message("both copies have the same size"), message("no operator computes on the host between the copies"),
        ),
        vetoes=(message("small copies, whose sizes may be equal by chance"),),
        risks=(message("Host code that reads the data, for example with NumPy, still needs a copy on the host."),),
        direction="to device",
    )]  # fmt: skip
