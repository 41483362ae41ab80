"""Rule 51, small-decode-batch: decode steps of an inference server compute few requests in a step.
Detected: a decode step has at most ``decode_requests`` requests on average. Each step reads all weights, so a step with
few requests takes about as long as one with many.
Predicted: nothing, because the recording does not show how long a step with more requests takes. The ceiling assumes
that a step with ``decode_requests`` requests takes as long as a recorded step."""

from __future__ import annotations

from perfkit_core.advice.decode_steps import decode_steps
from perfkit_core.advice.rule_input import Candidate, RuleInput
from perfkit_core.base.language.messages import message
from perfkit_core.trace.assembly.server_steps import serving_steps


def find(facts: RuleInput) -> list[Candidate]:
    steps = decode_steps(facts)
    steps = steps[steps["requests"].notna()]
    most = facts.thresholds.decode_requests
    if not len(steps) or not 0 < steps["requests"].mean() <= most:
        return []
    count, requests, time = len(steps), float(steps["requests"].mean()), int(steps["step_ns"].sum())
    tokens = int(steps["tokens"].fillna(0).sum())
    return [Candidate(
        message(
            "A decode step computes {requests:count} requests on average and takes {time:ns}. Most of its time goes "
            "into reading weights, which more requests would share.",
            requests=requests, time=time / count,
        ),
        evidence={
            "requests": requests, "decode_step_ns": time // count, "steps": count,
            "token_ns": time // tokens if tokens else None,
        },
        rows=serving_steps(facts.trace)[0],
        method="none",
        base_ns=time // count,
        ceiling_ns=round(time / count * (1 - requests / most)),
        preconditions=(message("the recording has decode steps with a known number of requests"),),
        vetoes=(
            message("a server without more concurrent requests: the batch cannot grow"),
            message("a mixture-of-experts model: more requests also read more experts"),
        ),
        risks=(
            message("A larger batch needs a larger KV cache."),
            message("Each request may get its tokens later, although all together get more tokens per second."),
        ),
    )]  # fmt: skip
