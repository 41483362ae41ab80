"""A rule that perfkit_core does not have: the time that a step would save without conversions between tensor
formats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfkit_core.advice.rule_input import Candidate, RuleInput
from perfkit_core.plugins.contracts import Remedy, Rule
from perfkit_core.replay.transforms import Remove
from perfkit_core.trace.model.schema import KERNEL

NAME = "TransData"


def find(facts: RuleInput) -> Sequence[Candidate]:
    """Return the conversions of all steps, or an empty list if there are none. Raises NotEvaluableError if no device
    work was recorded."""
    facts.need_device()
    trace = facts.trace
    rows = np.flatnonzero(trace.rows("kind", KERNEL) & trace.rows("name", NAME))
    if not len(rows):
        return []
    taken = facts.per_step(int(trace.ints("dur_ns")[rows].sum()))
    what = f"{len(rows)} conversions between tensor formats take {taken / 1e6:.1f} ms of the device in a step"
    evidence = {"conversions": len(rows), "device_ns": round(taken)}
    fill = {"format": "NC1HWC0"}
    return [Candidate(what, evidence, rows, transforms=(Remove(rows),), ceiling_ns=round(taken), fill=fill)]


RULE = Rule("format-conversions", 1000, 1, "Keep tensors in the device's own format", find)
REMEDY = Remedy(RULE.id, 'net.set_format("{format}")', "Cell.set_format")
