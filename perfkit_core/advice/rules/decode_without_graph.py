"""Rule 50, decode-without-graph: an inference server launches the kernels of decode steps one by one.
Detected: replays of graphs launch less than half of the device time of the decode steps, and within the steps the
device is idle for more than ``decode_launch_share`` of their time.
Predicted: as in rule 15 (launch-bound) if its conditions hold. Otherwise nothing; the ceiling is the idle time."""

from __future__ import annotations

from dataclasses import replace

from perfkit_core.advice.decode_steps import decode_steps
from perfkit_core.advice.rule_input import Candidate, RuleInput
from perfkit_core.advice.rules import launch_bound
from perfkit_core.base.language.messages import message
from perfkit_core.trace.assembly.server_steps import serving_steps


def find(facts: RuleInput) -> list[Candidate]:
    steps = decode_steps(facts)
    steps = steps[steps["busy_ns"].notna()]
    device, graph = (int(steps[name].sum()) for name in ("device_ns", "graph_ns"))
    if not device or 2 * graph >= device:
        return []
    count, time, busy = len(steps), int(steps["step_ns"].sum()), int(steps["busy_ns"].sum())
    idle = time - busy - int(steps["gap_ns"].fillna(0).sum())
    if idle <= facts.thresholds.decode_launch_share * time:
        return []
    shared = Candidate(
        message(
            "Decode steps launch {share:ratio} of their device time without a graph. Within a step of {time:ns}, the "
            "device is idle for {idle:ns} while the host launches kernels.",
            share=1 - graph / device, time=time / count, idle=idle / count,
        ),
        evidence={
            "idle_ns": idle // count, "idle_ratio": idle / time, "decode_step_ns": time // count, "steps": count,
            "graph_ratio": graph / device,
        },
        rows=serving_steps(facts.trace)[0],
        method="none",
        base_ns=time // count,
        ceiling_ns=idle // count,
        preconditions=(message("replays of graphs launch less than half of the device time"),),
        vetoes=(message("prefill steps, whose shapes differ from step to step"),),
        risks=(message("Captured graphs hold memory, and the server takes longer to start."),),
        conflicts=("launch-bound",),
    )  # fmt: skip
    predicted = launch_bound.of_launches(facts)
    return [replace(candidate, what=shared.what, evidence={**shared.evidence, **candidate.evidence},
                    conflicts=shared.conflicts) for candidate in predicted] or [shared]  # fmt: skip
