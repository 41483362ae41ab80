"""Rule 30: the device works less than half of the step."""

from __future__ import annotations

from typing import Final

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Candidate, NotEvaluableError
from perfkit_core.advice.rules.device_time import busy_ns
from perfkit_core.advice.rules.memory import peaks
from perfkit_core.advice.rules.phrases import part_of_step
from perfkit_core.language import say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.schema import DATALOADER


def find(facts: Facts) -> list[Candidate]:
    """Device busy for less than a share of each step. Carries no number: what a larger batch costs is not recorded."""
    facts.need_steps()
    facts.need_device()
    busy = busy_ns(facts)
    ratio = busy / max(facts.step_ns, 1)
    loading = facts.typical(facts.within_steps(facts.activity.loading)) / max(facts.step_ns, 1)
    if ratio >= facts.thresholds.busy_share or loading > facts.thresholds.loader_share:
        return []
    return [
        Candidate(
            say("the device works {part} ({ratio:.1%}): time for more", part=part_of_step(facts, busy), ratio=ratio),
            evidence={"busy_ns": round(busy), "busy_ratio": ratio, "step_ns": facts.step_ns, **_memory(facts)},
            method="none",
            preconditions=(_loading(facts, loading),),
            vetoes=(say("the training waits for its data"),),
            risks=(say("a larger batch needs more memory, and may need another learning rate"),),
        )
    ]


def _loading(facts: Facts, share: float) -> str:
    recorded = facts.trace.rows("kind", DATALOADER).any()
    return (
        say("loading of data takes {share:.1%} of each step", share=share)
        if recorded
        else say("no loading of data was recorded")
    )


def _memory(facts: Facts) -> dict[str, float]:
    """How full the memory is, where that was recorded: whether a larger batch fits."""
    try:
        return {"peak_memory_ratio": max(peak.ratio for peak in peaks(facts))}
    except NotEvaluableError:
        return {}


RULES: Final = (Rule("low-device-utilisation", 30, 1, "Give the device larger batches", find),)
