"""Rule 28, conv-bias-before-norm: a convolution adds a bias that the batch norm after it subtracts again.

Seen by: a convolution with a bias (by its shapes, or as an addition in the call of its layer) directly followed by a
batch norm. Transform: the operators that add the bias, and those that sum its gradient, go.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.advice.facts import Candidate, Facts, NotEvaluableError
from perfkit_core.advice.operators import (
    Shapes,
    backward_of,
    launched_within,
    operator_order,
    operators,
    outermost,
    per_row,
    within,
)
from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.language.messages import message
from perfkit_core.model.schema import FORWARD
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.transforms.durations import Remove


def find(facts: Facts) -> list[Candidate]:
    """Return one candidate for all convolutions."""
    trace = facts.trace
    if not (trace.known("op_name") and operators(trace).any()):
        raise NotEvaluableError(message("no operators with known names were recorded"))
    inside, biased = _inside_convolutions(trace)
    added, layers = _after_convolutions(trace)
    rows, count = np.union1d(inside, added), biased + layers
    work = launched_within(trace, rows) if facts.on_device else rows
    spent, per_step = facts.covered_ns(work), facts.per_step(count)
    if not facts.exceeds(spent, facts.thresholds.bias_share):
        return []
    return [
        Candidate(
            facts.plural(
                "{count:count} convolution {per_step} adds a bias that a batch norm subtracts again: {time}.",
                "{count:count} convolutions {per_step} add a bias that a batch norm subtracts again: {time}.",
                per_step, time=facts.of_step(spent),
            ),
            evidence={
                "bias_ns": round(spent), "bias_ratio": spent / max(facts.step_ns, 1), "step_ns": facts.step_ns,
                "convolutions": count,
            },
            rows=rows,
            edits=(Remove(rows),),
            ceiling_ns=round(spent),
            preconditions=(
                message("a batch norm follows directly"),
                message("the batch norm subtracts the mean of each channel"),
            ),
            risks=(message("A stored model has its bias: drop it when loading the model, or train anew."),),
        )
    ]  # fmt: skip


def _inside_convolutions(trace: Trace) -> tuple[IntArray, int]:
    """Return the operators inside convolutions that add the bias (and inside their gradients, that sum it), where the
    shapes show a bias; and how many convolutions."""
    order = operator_order(trace)
    conv, norm = trace.rows("op_name", "conv")[order.row], trace.rows("op_name", "batch_norm")[order.row]
    at = np.flatnonzero(conv[:-1] & norm[1:] & (order.thread[:-1] == order.thread[1:]))
    channels = per_row(trace, order.row[at], bias_channels, 0)
    rows = order.row[at[channels == per_row(trace, order.row[at + 1], channels_of, -1)]]
    adding = outermost(trace, within(trace, rows) & trace.rows("op_name", "add") & trace.host)
    backward = within(trace, backward_of(trace, rows))
    summing = outermost(trace, backward & trace.rows("op_name", "sum") & trace.host)
    return np.concatenate([adding, summing]), len(rows)


def _after_convolutions(trace: Trace) -> tuple[IntArray, int]:
    """Return the operators that add the bias after the convolution, last in the same call of a layer, with a batch norm
    directly after it; and how many."""
    order = operator_order(trace)
    row = order.row
    conv, reshape, add, norm = (trace.rows("op_name", name)[row] for name in ("conv", "reshape", "add", "batch_norm"))
    layer = nesting.nearest_above(trace.ints("parent"), trace.rows("kind", FORWARD))[row]
    first = np.flatnonzero(conv & (layer >= 0))
    adds = first + 1 + np.append(reshape, [False] * 3)[first + 1]  # a reshape of the bias may come before the addition
    kept = adds + 1 < len(row)
    first, adds = first[kept], adds[kept]
    kept = add[adds] & (layer[adds] == layer[first]) & norm[adds + 1]
    kept &= (layer[adds + 1] != layer[first]) & (order.thread[adds + 1] == order.thread[first])
    return np.union1d(row[first[kept] + 1], row[adds[kept]]), int(kept.sum())


def bias_channels(shapes: Shapes) -> int:
    """Return the length of the bias of a convolution (its third input), 0 without one."""
    return shapes[2][0] if len(shapes) > 2 and len(shapes[2]) == 1 else 0


def channels_of(shapes: Shapes) -> int:
    """Return the channels of the input of a batch norm: as many as it has weights, or the second dimension."""
    if len(shapes) > 1 and len(shapes[1]) == 1:
        return shapes[1][0]
    return shapes[0][1] if shapes and len(shapes[0]) > 1 else -1


RULE: Final = Rule("conv-bias-before-norm", 28, 1, "Leave out the bias before a batch norm", find)
