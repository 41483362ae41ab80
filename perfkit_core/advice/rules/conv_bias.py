"""Rule 28: a convolution adds a bias that the batch norm behind it takes away again."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core import nesting
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Candidate, NotEvaluableError
from perfkit_core.advice.rules.device_time import covered_ns, launched_within
from perfkit_core.advice.rules.operator_order import backward_of, operator_order, within
from perfkit_core.advice.rules.phrases import each_period, part, times
from perfkit_core.advice.rules.recorded_shapes import Shapes, per_row
from perfkit_core.language import say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.edits.removal import Remove
from perfkit_core.schema import FORWARD, OPERATOR
from perfkit_core.trace import IntArray, Trace


def find(facts: Facts) -> list[Candidate]:
    """Operators that add the bias, and those that sum its gradient, of convolutions with a batch norm behind."""
    trace = facts.trace
    if not (trace.known("op_name") and (trace.host & trace.rows("kind", OPERATOR)).any()):
        raise NotEvaluableError(say("no operators were recorded whose names are known"))
    inside, count = _biased(trace)
    own, more = _of_layers(trace)
    rows, count = np.union1d(inside, own), count + more
    shown = launched_within(trace, within(trace, rows)) if facts.on_device else rows
    taken = covered_ns(facts, shown)
    if taken <= facts.thresholds.bias_share * facts.step_ns:
        return []
    return [
        Candidate(
            say(
                "{times} {period} a convolution adds a bias that a batch norm takes away again: {part}",
                times=times(facts.per_step(count)), period=each_period(facts), part=part(facts, taken),
            ),
            evidence={
                "bias_ns": round(taken), "bias_ratio": taken / max(facts.step_ns, 1), "step_ns": facts.step_ns,
                "convolutions": count,
            },
            rows=rows,
            edits=(Remove(rows),),
            ceiling_ns=round(taken),
            preconditions=(
                say("a batch norm follows directly"),
                say("the batch norm subtracts the mean of each channel"),
            ),
            risks=(say("a stored model keeps its bias: load it with the bias left out, or train anew"),),
        )
    ]  # fmt: skip


def _biased(trace: Trace) -> tuple[IntArray, int]:
    """Operators inside of convolutions that add the bias (and inside of their gradients, that sum it), where the shapes
    tell of a bias; and how many convolutions."""
    order = operator_order(trace)
    conv, norm = trace.rows("op_name", "conv")[order.row], trace.rows("op_name", "batch_norm")[order.row]
    at = np.flatnonzero(conv[:-1] & norm[1:] & (order.thread[:-1] == order.thread[1:]))
    channels = per_row(trace, order.row[at], bias_channels, 0)
    at = at[channels == per_row(trace, order.row[at + 1], channels_of, -1)]
    rows = order.row[at]
    adding = _inner(trace, rows, "add")
    summing = _inner(trace, backward_of(trace, rows), "sum")
    return np.concatenate([adding, summing]), len(rows)


def _of_layers(trace: Trace) -> tuple[IntArray, int]:
    """Operators that add the bias behind the convolution, last in the same call of a layer, with a batch norm right
    behind; and how many."""
    order, parent = operator_order(trace), trace.ints("parent")
    row = order.row
    name = {word: trace.rows("op_name", word)[row] for word in ("conv", "reshape", "add", "batch_norm")}
    layer = nesting.nearest_above(parent, trace.rows("kind", FORWARD))[row]
    first = np.flatnonzero(name["conv"])
    first = first[layer[first] >= 0]
    adds = first + 1
    adds = adds + (np.append(name["reshape"], [False] * 3)[adds])
    kept = adds + 1 < len(row)
    first, adds = first[kept], adds[kept]
    kept = name["add"][adds] & (layer[adds] == layer[first]) & name["batch_norm"][adds + 1]
    kept &= (layer[adds + 1] != layer[first]) & (order.thread[adds + 1] == order.thread[first])
    return np.union1d(row[first[kept] + 1], row[adds[kept]]), int(kept.sum())


def _inner(trace: Trace, rows: IntArray, name: str) -> IntArray:
    """Outermost operators of a name inside of some rows."""
    wanted = within(trace, rows) & trace.rows("op_name", name) & trace.host
    found = np.flatnonzero(wanted)
    return found[~nesting.lies_in(trace.ints("parent"), wanted)[found]]


def bias_channels(shapes: Shapes) -> int:
    """Length of the bias of a convolution (its third input), 0 without one."""
    return shapes[2][0] if len(shapes) > 2 and len(shapes[2]) == 1 else 0


def channels_of(shapes: Shapes) -> int:
    """Channels of the input of a batch norm: as many as it has weights, or the second dimension."""
    if len(shapes) > 1 and len(shapes[1]) == 1:
        return shapes[1][0]
    return shapes[0][1] if shapes and len(shapes[0]) > 1 else -1


RULES: Final = (Rule("conv-bias-before-norm", 28, 1, "Leave out the bias before a batch norm", find),)
