"""Rule 18, zero-fill-gradients: gradients are filled with zeros one by one instead of being dropped.
Detected: while an optimizer clears gradients, operators fill at least ``optimizer_tensors`` (10) tensors with zeros,
or fewer that take a notable share of the step.
Predicted: the step time without the fills. The first addition to each gradient becomes an assignment. On a host, large
gradients may then be freed and mapped again in every step, which can take longer than the fill."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core.advice.operators import matching, operators
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput, assume
from perfkit_core.base.algorithms import nesting
from perfkit_core.base.language.messages import message
from perfkit_core.replay.transforms import Case, InCases, Insert, Quantity, Remove, Scale, Transform
from perfkit_core.trace.model.schema import OPTIMIZER
from perfkit_core.views.steps.step_phases import CLEARS_GRADIENTS

_ZEROS: Final = re.compile(r"(?<![a-z])(zero|fill|full)(?![a-z])", re.IGNORECASE)
_FOREACH: Final = re.compile(r"foreach", re.IGNORECASE)
_TAKEN_NS: Final = Quantity(500, 800, 1500, message("measured on a CPU with torch 2.13"))
_LARGE_NS: Final = 10_000
"""A longer fill on the host writes more than about 128 KiB. The C library maps larger blocks separately."""
_NOTABLE: Final = 0.03
"""Fewer tensors are reported if filling them takes more than this share of the step."""
_MAPPING: Final = 4
"""Mapping memory and touching it for the first time takes this many times as long as filling mapped memory."""
_GONE: Final = Quantity(0, 0, 1, message("a gradient with other references to it is copied, not assigned"))


def find(facts: RuleInput) -> list[Candidate]:
    trace, parent, dur = facts.trace, facts.trace.ints("parent"), facts.trace.ints("dur_ns")
    recorded = (facts.replay.first >= 0) & facts.in_steps
    clears = trace.host & trace.rows("kind", OPTIMIZER) & matching(trace, "name", CLEARS_GRADIENTS.search)
    zeros = operators(trace) & matching(trace, "name", _ZEROS.search) & nesting.lies_in(parent, clears)
    fills = np.flatnonzero(zeros & ~nesting.holds(parent, zeros) & recorded)
    nodes = operators(trace) & trace.rows("op_name", "accumulate_grad")
    nearest = nesting.nearest_above(parent, operators(trace))
    adding = operators(trace) & trace.rows("op_name", "add") & (nearest >= 0) & nodes[nearest]
    adds = np.flatnonzero(adding & recorded)
    if not len(fills) and (len(adds) or nodes.any()) and not clears.any():
        raise NotEvaluableError(
            message("this framework calls no operator to clear gradients, so clearing was not recorded"),
            message("if the framework fills gradients with zeros by default, turn this off"),
        )
    tensors = facts.median_total(fills)
    if tensors < facts.thresholds.optimizer_tensors and not facts.exceeds(facts.mean_ns(fills), _NOTABLE):
        return []
    both = np.append(fills, adds)
    spent = facts.median_total(both, dur[both])
    batched = np.append(matching(trace, "name", _FOREACH.search), False)[parent[fills]]
    changes: list[Transform] = [Remove(np.unique(np.where(batched, parent[fills], fills)))]
    if len(adds):
        # first: the share of the additions that directly follow a fill and therefore become assignments
        first, average = min(len(fills) / len(adds), 1.0), max(float(dur[adds].mean()), 1.0)
        assigning_ns = (_TAKEN_NS.low, _TAKEN_NS.mid, _TAKEN_NS.high)
        low, mid, high = (1 - first * (1 - min(ns / average, 1.0)) for ns in assigning_ns)
        changes.append(Scale(adds, Quantity(low, mid, high, _TAKEN_NS.source), device=False))
        changes.append(Scale(adds, Quantity(1 - first, 1 - first, 1.0, _GONE.source), host=False))
    large = np.empty(0, np.int64) if facts.on_device else fills[dur[fills] > _LARGE_NS]
    if len(large):
        changes.append(InCases(Insert(large, _MAPPING * dur[large]), (Case.LONG,)))
    return [Candidate(
        facts.plural(
            "{tensors:count} gradient {per_step} is set to zero, and a new gradient is added. This takes {time}.",
            "{tensors:count} gradients {per_step} are set to zero, and new gradients are added. This takes {time}.",
            tensors, tensors=tensors, time=facts.of_step(spent),
        ),
        evidence={
            "tensors": round(tensors), "additions": len(adds) // max(len(facts.steps), 1), "zeroing_ns": round(spent),
            "step_ns": facts.step_ns,
        },
        rows=fills,
        transforms=tuple(changes),
        ceiling_ns=facts.ceiling_ns(facts.totals(both, dur[both])),
        preconditions=(message("operators write zeros where the optimizer clears gradients"),),
        vetoes=(message("the second and later additions to a gradient, which cannot be avoided"),),
        assumptions=assume(taken_over_ns=_TAKEN_NS, device_factor=_GONE),
        risks=(
            message("Code that reads a gradient after clearing gets None instead of zeros."),
            *([message("Large gradients may be freed and mapped again in every step, which takes longer.")]
              if len(large) else []),
        ),
    )]  # fmt: skip
