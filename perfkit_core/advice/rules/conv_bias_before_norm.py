"""Rule 28, conv-bias-before-norm: a convolution adds a bias that the following batch norm subtracts.
Detected: a batch norm directly after a convolution with a bias. The bias shows in the convolution's input shapes, or
as an addition in the layer call that contains the convolution.
Predicted: the step time without the operators that add the bias or sum its gradient."""

from __future__ import annotations

import numpy as np

from perfkit_core.advice import operators
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput
from perfkit_core.base.algorithms import arrays, nesting
from perfkit_core.base.language.messages import message
from perfkit_core.replay.transforms import Remove
from perfkit_core.trace.model.schema import FORWARD
from perfkit_core.trace.model.trace import Trace


def find(facts: RuleInput) -> list[Candidate]:
    trace = facts.trace
    if not (trace.has_values("op_name") and operators.operators(trace).any()):
        raise NotEvaluableError(message("the recording has no operators whose names perfkit knows"))
    rows, count = bias_rows(trace)
    work = operators.launched_within(trace, rows) if facts.on_device else rows
    spent = facts.covered_ns(work)
    if not facts.exceeds(spent, facts.thresholds.bias_share):
        return []
    return [Candidate(
        facts.plural(
            "{count:count} convolution {per_step} adds a bias that a batch norm subtracts again. This takes {time}.",
            "{count:count} convolutions {per_step} add a bias that a batch norm subtracts again. This takes {time}.",
            facts.per_step(count), time=facts.of_step(spent),
        ),
        evidence={**facts.part("bias", spent), "convolutions": count},
        rows=rows,
        transforms=(Remove(rows),),
        ceiling_ns=round(spent),
        preconditions=(
            message("a batch norm directly follows the convolution"),
            message("the batch norm subtracts the mean of each channel"),
        ),
        risks=(message("Saved models contain the bias: drop it when loading the model, or retrain."),),
    )]  # fmt: skip


def bias_rows(trace: Trace) -> tuple[arrays.IntArray, int]:
    """Find the convolutions with a bias before a batch norm. Return the rows of the operators that add these biases or
    sum their gradients, and the number of these convolutions."""
    order = operators.operator_order(trace)
    row, thread = order.row, order.thread
    conv, reshape, add, norm = (trace.rows("op_name", name)[row] for name in ("conv", "reshape", "add", "batch_norm"))
    # case 1: the input shapes of the convolution operator show that it adds a bias
    at = np.flatnonzero(conv[:-1] & norm[1:] & (thread[:-1] == thread[1:]))
    channels = operators.per_row(trace, row[at + 1], channels_of, -1)
    biased = row[at[operators.per_row(trace, row[at], bias_channels, 0) == channels]]
    adding = operators.outermost(trace, operators.within(trace, biased) & trace.rows("op_name", "add") & trace.host)
    backward = operators.within(trace, operators.backward_of(trace, biased))
    summing = operators.outermost(trace, backward & trace.rows("op_name", "sum") & trace.host)
    # case 2: a separate operator, the last one in the layer's call, adds the bias, perhaps after a reshape of the bias
    layer = nesting.nearest_above(trace.ints("parent"), trace.rows("kind", FORWARD))[row]
    first = np.flatnonzero(conv & (layer >= 0))
    adds = first + 1 + np.append(reshape, [False] * 3)[first + 1]
    has_next = adds + 1 < len(row)
    first, adds = first[has_next], adds[has_next]
    is_bias = add[adds] & (layer[adds] == layer[first]) & norm[adds + 1]
    is_bias &= (layer[adds + 1] != layer[first]) & (thread[adds + 1] == thread[first])
    rows = np.concatenate([adding, summing, row[first[is_bias] + 1], row[adds[is_bias]]])
    return np.unique(rows), len(biased) + int(is_bias.sum())


def bias_channels(shapes: operators.Shapes) -> int:
    """Return the length of a convolution's third input, the bias; 0 without a bias."""
    return shapes[2][0] if len(shapes) > 2 and len(shapes[2]) == 1 else 0


def channels_of(shapes: operators.Shapes) -> int:
    """Return the channels of a batch norm: length of its weights, else second dimension of its input, else -1."""
    if len(shapes) > 1 and len(shapes[1]) == 1:
        return shapes[1][0]
    return shapes[0][1] if shapes and len(shapes[0]) > 1 else -1
