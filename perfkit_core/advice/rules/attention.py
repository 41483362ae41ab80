"""Rule 27: attention is computed operator by operator, with its matrix of scores in memory."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core import nesting
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Assumption, Candidate, NotEvaluableError
from perfkit_core.advice.rules.device_time import covered_ns, launched_within
from perfkit_core.advice.rules.operator_order import OperatorOrder, backward_of, operator_order, within
from perfkit_core.advice.rules.phrases import each_period, part, times
from perfkit_core.advice.rules.recorded_shapes import Shapes, per_row
from perfkit_core.language import in_english, say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.edits.durations import Scale
from perfkit_core.replay.quantity import Quantity
from perfkit_core.schema import FORWARD
from perfkit_core.trace import BoolArray, IntArray, Trace

FUSED: Final = Quantity(
    0.25,
    0.4,
    0.9,
    in_english("Dao et al., FlashAttention, NeurIPS 2022: 2 to 4 times as fast; less for short sequences"),
)
"""Factor of the device's time of the chain in one fused kernel."""
_PRODUCT, _SOFTMAX, _BETWEEN, _OTHER = 1, 2, 3, 4
_BETWEEN_NAMES: Final = frozenset(
    {"add", "subtract", "multiply", "divide", "scale", "where", "fill", "dropout", "cast", "copy", "contiguous",
     "alias", "reshape", "transpose", "expand", "slice", "split", "concat", "clip", "maximum", "triangular", "compare",
     "logical", "negative", "assign"}
)  # fmt: skip
"""Scaling, masks, dropout, and changes of shape or type."""
_LAYER: Final = re.compile(r"linear|addmm|\bfc\b|gemm_epilogue", re.IGNORECASE)
"""Products with weights, by the operator or by the layer that calls it: no attention."""
_SCORES: Final = 3
"""Dimensions that a matrix of scores of a batch has at least."""


def find(facts: Facts) -> list[Candidate]:
    """Product, softmax, product, and between them nothing but scaling, masks and dropout: device time of such chains
    and of their backward pass."""
    facts.need_device()
    if not facts.trace.known("op_name"):
        raise NotEvaluableError(say("no operators were recorded whose names are known"))
    chains, count = chain_rows(facts.trace)
    both = np.concatenate([chains, backward_of(facts.trace, chains)])
    work = launched_within(facts.trace, within(facts.trace, both))
    taken = covered_ns(facts, work)
    if taken <= facts.thresholds.attention_share * facts.step_ns:
        return []
    return [
        Candidate(
            say(
                "product, softmax and product, one after the other, {times} {period}, take {part} on the device",
                times=times(facts.per_step(count)), period=each_period(facts), part=part(facts, taken),
            ),
            evidence={
                "chains": count, "device_ns": round(taken), "device_ratio": taken / max(facts.step_ns, 1),
                "step_ns": facts.step_ns, "kernels": len(work),
            },
            rows=chains,
            edits=(Scale(work, FUSED, below=False, host=False),),
            ceiling_ns=round(taken),
            preconditions=(say("only scaling, masks, dropout and changes of shape lie between"),),
            vetoes=(say("attention is fused already"),),
            assumptions=(Assumption("device_factor", FUSED, FUSED.source),),
            risks=(
                say("the weights of attention are no longer there to be looked at"),
                say("masks of some kinds are not fused"),
            ),
        )
    ]  # fmt: skip


def chain_rows(trace: Trace) -> tuple[IntArray, int]:
    """Rows of the operators in chains of product, softmax and product, and how many chains there are."""
    order = operator_order(trace)
    label = _labels(trace, order)
    at = np.arange(len(label))
    softmax = np.flatnonzero((label == _SOFTMAX) & _of_scores(trace, order.row))
    closed = label != _BETWEEN
    before = np.append(-1, np.maximum.accumulate(np.where(closed, at, -1)))[softmax]
    following = np.minimum.accumulate(np.where(closed, at, len(label))[::-1])[::-1]
    after = np.append(following, len(label))[softmax + 1]
    after = np.where(after < len(label), after, -1)
    whole = order.same_thread(before, softmax) & order.same_thread(after, softmax)
    whole &= (np.append(label, 0)[before] == _PRODUCT) & (np.append(label, 0)[after] == _PRODUCT)
    change = np.zeros(len(label) + 1, np.int64)
    np.add.at(change, before[whole], 1)
    np.add.at(change, after[whole] + 1, -1)
    return order.row[np.cumsum(change)[:-1] > 0], int(whole.sum())


def _labels(trace: Trace, order: OperatorOrder) -> IntArray:
    """What each operator is in a chain."""
    canonical, names = trace.codes("op_name"), trace.codes("name")
    kind = np.array([_label(name) for name in canonical.values], np.int64)
    found: IntArray = canonical.lookup(kind, _OTHER)[order.row]
    weighted = names.lookup(np.array([bool(_LAYER.search(name)) for name in names.values], np.bool_), False)
    call = nesting.nearest_above(trace.ints("parent"), trace.rows("kind", FORWARD))[order.row]
    layers = weighted[order.row] | ((call >= 0) & weighted[call])
    return np.where((found == _PRODUCT) & layers, _OTHER, found)


def _label(canonical: str) -> int:
    if canonical in ("matmul", "bmm", "einsum"):
        return _PRODUCT
    if canonical == "softmax":
        return _SOFTMAX
    return _BETWEEN if canonical in _BETWEEN_NAMES else _OTHER


def _of_scores(trace: Trace, rows: IntArray) -> BoolArray:
    """True where the input of a softmax has the dimensions of scores, or its shape is unknown."""
    found: BoolArray = per_row(trace, rows, _dimensions, _SCORES) >= _SCORES
    return found


def _dimensions(shapes: Shapes) -> int:
    return len(shapes[0]) if shapes and shapes[0] else _SCORES


RULES: Final = (Rule("unfused-attention", 27, 1, "Use fused attention", find),)
