"""Rule 55, recomputed-forward: the backward pass computes parts of the forward pass again, to save memory.
Detected: operators of the forward pass that run again in the backward pass, with the device work that they launch. They
take more than ``recomputed_share`` of the step, and no device is known to lack memory for their results.
Predicted: nothing, because the recording does not show how many of the results fit in the memory. The ceiling is the
time of these operators."""

from __future__ import annotations

import numpy as np

from perfkit_core.advice.operators import outermost
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput
from perfkit_core.advice.rules.memory_near_limit import peaks
from perfkit_core.base.algorithms.arrays import NO_ROW
from perfkit_core.base.language.messages import message
from perfkit_core.trace.model.schema import KERNEL, MEMCPY, MEMSET
from perfkit_core.views.operators.operator_work import recomputed


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_steps()
    trace = facts.trace
    again = recomputed(trace) & facts.in_steps
    rows = outermost(trace, again & trace.operators)
    if facts.on_device:
        launch = trace.ints("launched_by")
        of_device = trace.rows("kind", KERNEL, MEMCPY, MEMSET)
        rows = np.flatnonzero(of_device & (launch != NO_ROW) & again[launch])
    spent = facts.covered_ns(rows)
    if not facts.exceeds(spent, facts.thresholds.recomputed_share):
        return []
    try:
        peak = max(peaks(facts), key=lambda peak: peak.ratio)
        if peak.ratio > facts.thresholds.memory_share:
            return []
        room = message(
            "At the peak, {free:bytes} of the {total:bytes} of memory of {device} are not allocated.",
            free=peak.of_bytes - peak.bytes, total=peak.of_bytes, device=peak.device,
        )  # fmt: skip
    except NotEvaluableError as unknown:
        peak = None
        room = message("Whether the memory has room for them cannot be told: {why}.", why=unknown.reason.text)
    return [Candidate(
        message(
            "The backward pass computes parts of the forward pass again, for {time}. {room}",
            time=facts.of_step(spent), room=room,
        ),
        evidence={
            **facts.part("recomputed", spent), "peak_bytes": peak and peak.bytes,
            "device_bytes": peak and peak.of_bytes,
        },
        rows=rows,
        method="none",
        ceiling_ns=round(spent),
        preconditions=(message("the operators and shapes of the forward pass occur again in the backward pass"),),
        risks=(message("Results that are kept need memory until the backward pass has used them."),),
        words={"room": "unknown" if peak is None else "yes"},
    )]  # fmt: skip
