"""Rule 47, repeated-forward: the same network computes the same result twice in a step.
Detected: two equal sequences of forward operators with gradients in a step, of which only one has a backward pass.
Predicted: the step time if the result is computed once."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final

import numpy as np

from perfkit_core.advice.operators import matching, operator_order
from perfkit_core.advice.rule_input import Candidate, RuleInput
from perfkit_core.base.algorithms import nesting
from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.base.language.messages import message
from perfkit_core.replay.transforms import Remove
from perfkit_core.trace.model.schema import BACKWARD, DATALOADER, OPERATOR_DETAIL, OPTIMIZER

_FEWEST: Final = 6
"""Minimum number of operators of a repeated sequence."""
_PLACES: Final = 8
"""Maximum number of equal short sequences that are compared with each other."""
_NODES: Final = re.compile(r"node_creation")
_LAYERS: Final = (
    "conv", "conv_transpose", "embedding", "batch_norm", "layer_norm", "rnn", "matmul", "attention",
)  # fmt: skip
"""Operators whose forward calls are compared with their backward calls."""
_GRADIENT: Final = "_grad"


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_steps()
    trace, order = facts.trace, operator_order(facts.trace)
    if not (trace.rows("phase", BACKWARD) & facts.in_steps).any():
        return []
    creates = trace.rows("kind", OPERATOR_DETAIL) & matching(trace, "name", _NODES.search)
    noted = (trace.ints("sequence") >= 0) | nesting.holds(trace.ints("parent"), creates)
    forward = noted & facts.in_steps & ~trace.rows("phase", BACKWARD, OPTIMIZER, DATALOADER)
    rows = order.row[forward[order.row]]
    backward = order.row[(trace.rows("phase", BACKWARD) & facts.in_steps)[order.row]]
    names, shapes, canonical = trace.codes("name"), trace.codes("shapes"), trace.codes("op_name")
    symbol = names.codes[rows].astype(np.int64) * (len(shapes.values) + 1) + shapes.codes[rows] + 1
    layers_of = [*map(_layer, canonical.values), ""]  # the last item is for code -1
    step = trace.ints("step")
    removed: list[IntArray] = []
    for number in np.unique(step[rows]).tolist():
        here = np.flatnonzero(step[rows] == number)
        mine, grads = (
            [layers_of[code] for code in canonical.codes[part].tolist()]
            for part in (rows[here], backward[step[backward] == number])
        )
        # missing: how many more forward than backward calls the step has
        missing = {name: mine.count(name) - grads.count(name) for name in _LAYERS if name in mine and name in grads}
        for length, first in _repeats(symbol[here].tolist()):
            block = [layers_of[code] for code in canonical.codes[rows[here[first : first + length]]].tolist()]
            layers = [name for name in missing if name in block]
            if layers and all(missing[name] >= block.count(name) for name in layers):
                removed.append(rows[here[first : first + length]])
                break
    number_of_steps = len(np.unique(facts.steps.number[facts.mine]))
    if not removed or 2 * len(removed) <= number_of_steps:
        return []
    chosen = np.concatenate(removed)
    spent = facts.mean_ns(chosen)
    if not facts.exceeds(spent, facts.thresholds.repeated_share):
        return []
    count = round(len(chosen) / len(removed))
    return [Candidate(
        message(
            "The same {count:count} forward operators run twice in a step, and only one of the results has a backward "
            "pass. The other takes {time}.",
            count=count, time=facts.of_step(spent),
        ),
        evidence={"operators": count, "steps": len(removed), **facts.part("repeated", spent)},
        rows=chosen,
        transforms=(Remove(chosen),),
        ceiling_ns=round(spent),
        preconditions=(
            message("both sequences have the same operators and shapes"),
            message("one of them keeps its inputs for a backward pass that does not take place"),
        ),
        vetoes=(message("networks that run without gradients, such as a target or a teacher"),),
        risks=(message("If the two calls have different inputs or parameters, the result cannot be used twice."),),
    )]  # fmt: skip


def _layer(canonical: str) -> str:
    """Return the name of a layer for an operator or its gradient. The gradient of a linear layer is a product."""
    name = canonical.removesuffix(_GRADIENT)
    return "matmul" if name in ("linear", "bmm") else name


def _repeats(symbols: list[int]) -> list[tuple[int, int]]:
    """Return the sequences that occur twice without overlap: their lengths, and the places where they first begin, the
    longest first."""
    places: dict[tuple[int, ...], list[int]] = defaultdict(list)
    repeats: set[tuple[int, int]] = set()
    for at in range(len(symbols) - _FEWEST + 1):
        earlier = places[tuple(symbols[at : at + _FEWEST])]
        for first in earlier[:_PLACES]:
            if first and at and symbols[first - 1] == symbols[at - 1] and at - 1 >= first - 1 + _FEWEST:
                continue  # part of a longer sequence
            length, most = 0, min(len(symbols) - at, at - first)
            while length < most and symbols[first + length] == symbols[at + length]:
                length += 1
            if length >= _FEWEST:
                repeats.add((length, first))
        earlier.append(at)
    return sorted(repeats, reverse=True)
