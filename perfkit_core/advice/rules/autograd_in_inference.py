"""Rule 41, autograd-in-inference: operators prepare gradients that nobody computes.
Detected: steps without a backward pass and without updates, whose operators record what a backward pass would need.
Predicted: the step time if they do not."""

from __future__ import annotations

import re
from typing import Final

from perfkit_core.advice.operators import matching, operator_order
from perfkit_core.advice.rule_input import Candidate, RuleInput, assume
from perfkit_core.base.algorithms import nesting
from perfkit_core.base.language.messages import message
from perfkit_core.replay.transforms import Quantity, Scale
from perfkit_core.trace.model.schema import BACKWARD, DATALOADER, OPERATOR_DETAIL, OPTIMIZER

_WITHOUT: Final = Quantity(
    0.90, 0.97, 1.0, message("estimate: preparing a backward pass takes at most a tenth of the time of the operators")
)
_NODES: Final = re.compile(r"node_creation")
"""Names of events in which a framework creates a node of the backward pass."""


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_steps()
    trace, order = facts.trace, operator_order(facts.trace)
    if (trace.rows("phase", BACKWARD, OPTIMIZER) & facts.in_steps).any():
        return []
    rows = order.row[facts.in_steps[order.row] & ~trace.rows("phase", DATALOADER)[order.row]]
    creates = trace.rows("kind", OPERATOR_DETAIL) & matching(trace, "name", _NODES.search)
    noted = (trace.ints("sequence") >= 0) | nesting.holds(trace.ints("parent"), creates)
    spent, part = facts.mean_ns(rows), facts.mean_ns(rows[noted[rows]])
    if not facts.exceeds(part, facts.thresholds.autograd_share):
        return []
    return [Candidate(
        message(
            "No step computes gradients, but autograd is on: operators that take {time} record what a backward pass "
            "would need.",
            time=facts.of_step(part),
        ),
        evidence={"operators": len(rows), **facts.part("operators", spent)},
        rows=rows[noted[rows]],
        transforms=(Scale(rows, _WITHOUT),),
        ceiling_ns=facts.ceiling_ns(facts.totals(rows, trace.ints("dur_ns")[rows])),
        preconditions=(message("no step has a backward pass or an update"),),
        assumptions=assume(remaining_factor=_WITHOUT),
    )]  # fmt: skip
