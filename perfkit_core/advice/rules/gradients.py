"""Rule 18: gradients are filled with zeros, one by one, in place of being dropped."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core import nesting
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Assumption, Candidate, NotEvaluableError
from perfkit_core.advice.rules import calls
from perfkit_core.advice.rules.phrases import counted, each_period, part
from perfkit_core.language import in_english, say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.edits.durations import Scale
from perfkit_core.replay.edits.removal import Remove
from perfkit_core.replay.quantity import Quantity
from perfkit_core.schema import OPTIMIZER
from perfkit_core.trace import BoolArray, IntArray, Trace

_CLEARS: Final = r"zero_?grad|clear_?grad"
_ZEROS: Final = r"(?<![a-z])(zero|fill|full)(?![a-z])"
_TAKEN_NS: Final = Quantity(
    500,
    800,
    1500,
    in_english("measured on CPU, torch 2.13: a gradient that is taken over in place of added, per tensor"),
)
_GONE: Final = Quantity(0, 0, 1, in_english("a gradient that others hold, too, is copied in place of taken over"))


def zeroed_gradients(facts: Facts) -> list[Candidate]:
    """Rule 18: zeros are written into the gradients, and the new gradients then added to them."""
    fills = _fills(facts)
    adds = _added(facts)
    if not len(fills) and len(adds) + len(_nodes(facts.trace)) and not _clears(facts).any():
        raise NotEvaluableError(
            say(
                "how gradients are cleared was not recorded: this framework calls no operator for it; where it fills "
                "them with zeros by default, ask it not to"
            )
        )
    tensors = calls.typical(facts, fills)
    return [_dropped(facts, fills, adds, tensors)] if tensors >= facts.thresholds.optimizer_tensors else []


def _clears(facts: Facts) -> BoolArray:
    """True for the spans in which an optimizer clears gradients."""
    trace = facts.trace
    found: BoolArray = trace.host & trace.rows("kind", OPTIMIZER) & calls.named(trace, _CLEARS)
    return found


def _fills(facts: Facts) -> IntArray:
    """Innermost operators that write zeros where an optimizer clears gradients."""
    trace = facts.trace
    zeros = calls.operators(trace) & calls.named(trace, _ZEROS) & nesting.lies_in(trace.ints("parent"), _clears(facts))
    inner = zeros & ~nesting.holds(trace.ints("parent"), zeros) & (facts.replay.first >= 0)
    return calls.in_steps(facts, np.flatnonzero(inner))


def _nodes(trace: Trace) -> IntArray:
    return np.flatnonzero(calls.operators(trace) & trace.rows("op_name", "accumulate_grad"))


def _added(facts: Facts) -> IntArray:
    """Operators that add a new gradient to the one that is there."""
    trace, parent = facts.trace, facts.trace.ints("parent")
    nodes = trace.rows("op_name", "accumulate_grad")
    nearest = nesting.nearest_above(parent, calls.operators(trace))
    adds = calls.operators(trace) & trace.rows("op_name", "add") & (nearest >= 0) & nodes[nearest]
    return calls.in_steps(facts, np.flatnonzero(adds & (facts.replay.first >= 0)))


def _dropped(facts: Facts, fills: IntArray, adds: IntArray, tensors: float) -> Candidate:
    dur = facts.trace.ints("dur_ns")
    both = np.append(fills, adds)
    every = calls.typical(facts, both, dur[both])
    batched = np.append(calls.named(facts.trace, "foreach"), False)[facts.trace.ints("parent")[fills]]
    around = np.unique(np.where(batched, facts.trace.ints("parent")[fills], fills))
    return Candidate(
        say(
            "zeros are written into {counted} {period}, and the new gradients are added to them: {part}",
            counted=counted(tensors, in_english("gradient"), in_english("gradients")),
            period=each_period(facts),
            part=part(facts, every),
        ),
        evidence={
            "tensors": round(tensors), "additions": len(adds) // max(len(facts.steps), 1), "zeroing_ns": round(every),
            "step_ns": facts.step_ns,
        },
        rows=fills,
        edits=(Remove(around), *_taken(adds, dur[adds], min(len(fills) / max(len(adds), 1), 1.0))),
        ceiling_ns=calls.without(facts, calls.per_step(facts, both, dur[both])),
        preconditions=(say("zeros are written where the optimizer clears gradients"),),
        vetoes=(say("gradients that several backward passes add up: only the first addition counts"),),
        assumptions=(
            Assumption("taken_over_ns", _TAKEN_NS, _TAKEN_NS.source),
            Assumption("device_factor", _GONE, _GONE.source),
        ),
        risks=(say("code that reads a gradient after it was cleared finds none in place of zeros"),),
    )  # fmt: skip


def _taken(adds: IntArray, dur_ns: IntArray, first: float) -> tuple[Scale, ...]:
    """The ``first`` share of the additions becomes taking the gradient over."""
    if not len(adds):
        return ()
    average = max(float(dur_ns.mean()), 1.0)
    low, mid, high = (
        1 - first * (1 - min(taken / average, 1.0)) for taken in (_TAKEN_NS.low, _TAKEN_NS.mid, _TAKEN_NS.high)
    )
    kernels = Quantity(1 - first, 1 - first, 1.0, _GONE.source)
    return Scale(adds, Quantity(low, mid, high, _TAKEN_NS.source), device=False), Scale(adds, kernels, host=False)


RULES: Final = (Rule("zero-fill-gradients", 18, 1, "Drop gradients in place of zeroing them", zeroed_gradients),)
