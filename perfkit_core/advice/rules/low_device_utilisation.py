"""Rule 30, low-device-utilisation: the device is idle for more than half of the step although data arrive in time.
Detected: device work covers less than ``busy_share`` of the step, and loading takes at most ``loader_share``.
Predicted: nothing, because the recording does not show the cost of a larger batch."""

from __future__ import annotations

from perfkit_core.advice.decode_steps import is_served
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput
from perfkit_core.advice.rules.memory_near_limit import peaks
from perfkit_core.base.language.messages import message
from perfkit_core.trace.model.schema import DATALOADER


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_steps()
    facts.need_device()
    if is_served(facts):  # the device works after the step, and rules 49 to 51 give advice
        return []
    busy_ratio, loading_ratio = (ns / max(facts.step_ns, 1) for ns in (facts.busy_ns, facts.loading_ns))
    if busy_ratio >= facts.thresholds.busy_share or loading_ratio > facts.thresholds.loader_share:
        return []
    try:  # the memory peak shows whether a larger batch fits
        memory = {"peak_memory_ratio": max(peak.ratio for peak in peaks(facts))}
    except NotEvaluableError:
        memory = {}
    loading = message("no data loading was recorded")
    if facts.trace.rows("kind", DATALOADER).any():
        loading = message("data loading takes {share:ratio} of each step", share=loading_ratio)
    return [Candidate(
        message(
            "The device is busy for {time} ({ratio:ratio}): it has room for larger batches.",
            time=facts.of_step(facts.busy_ns), ratio=busy_ratio,
        ),
        evidence={**facts.part("busy", facts.busy_ns), **memory},
        method="none",
        preconditions=(loading,),
        vetoes=(message("a training run that waits for data"),),
        risks=(message("A larger batch needs more memory and may need another learning rate."),),
    )]  # fmt: skip
