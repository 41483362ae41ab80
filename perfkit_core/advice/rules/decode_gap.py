"""Rule 49, decode-gap: the device of an inference server is idle between decode steps.
Detected: the gaps before decode steps (:mod:`perfkit_core.views.steps.serving`) take more than ``decode_gap_share`` of
the time of these steps.
Predicted: nothing, because the recording does not show how much of the work in the gaps can run while the device works.
The ceiling is the time of the gaps."""

from __future__ import annotations

from perfkit_core.advice.decode_steps import decode_steps
from perfkit_core.advice.rule_input import Candidate, RuleInput
from perfkit_core.base.language.messages import message
from perfkit_core.trace.assembly.server_steps import serving_steps


def find(facts: RuleInput) -> list[Candidate]:
    steps = decode_steps(facts)
    steps = steps[steps["gap_ns"].notna() & steps["busy_ns"].notna()]
    time, gap = (int(steps[name].sum()) for name in ("step_ns", "gap_ns"))
    if not len(steps) or gap <= facts.thresholds.decode_gap_share * time:
        return []
    count = len(steps)
    return [Candidate(
        message(
            "Before each decode step, the device is idle for {gap:ns}, which is {share:ratio} of the {time:ns} from "
            "step to step.",
            gap=gap / count, share=gap / time, time=time / count,
        ),
        evidence={
            "gap_ns": gap // count, "gap_ratio": gap / time, "decode_step_ns": time // count, "steps": count,
            "busy_ns": int(steps["busy_ns"].sum()) // count,
        },
        rows=serving_steps(facts.trace)[0],
        method="none",
        base_ns=time // count,
        ceiling_ns=gap // count,
        preconditions=(message("no device work of an earlier step runs during the gaps"),),
        vetoes=(message("a server that waits for requests: these gaps cost nothing"),),
        risks=(message("With overlap, the server may compute one extra token per request."),),
    )]  # fmt: skip
