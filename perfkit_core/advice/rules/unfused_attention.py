"""Rule 27, unfused-attention: attention runs operator by operator, with its matrix of scores in memory.
Detected: chains of product, softmax and product, with only scaling, masks, dropout and shape changes between them.
Predicted: the step time if one fused kernel or operator replaces each chain and its backward pass."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core.advice.operators import backward_of, launched_within, matching, operator_order, per_row
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput, assume
from perfkit_core.base.algorithms import arrays, nesting
from perfkit_core.base.language.messages import message
from perfkit_core.replay.transforms import Quantity, Scale
from perfkit_core.trace.model.schema import FORWARD
from perfkit_core.trace.model.trace import Trace

_FUSED: Final = Quantity(
    0.25, 0.4, 0.9, message("Dao et al., FlashAttention, NeurIPS 2022: 2 to 4 times as fast, less for short sequences")
)
_FUSED_ON_HOST: Final = Quantity(0.3, 0.5, 0.95, message("estimate: the scores stay in the cache"))
_BETWEEN_PRODUCTS: Final = message("between the two matrix products are only scaling, masks, dropout and shape changes")
_RISKS: Final = (
    message("The attention weights are no longer available for inspection."),
    message("Some kinds of masks are not fused."),
)
_PRODUCT, _SOFTMAX, _BETWEEN, _OTHER = 1, 2, 3, 4
_ROLES: Final = {
    "matmul": _PRODUCT, "bmm": _PRODUCT, "einsum": _PRODUCT, "softmax": _SOFTMAX,
    **dict.fromkeys(
        ("add", "subtract", "multiply", "divide", "scale", "where", "fill", "dropout", "cast", "copy", "contiguous",
         "alias", "reshape", "transpose", "expand", "slice", "split", "concat", "clip", "maximum", "triangular",
         "compare", "logical", "negative", "assign"),
        _BETWEEN,
    ),
}  # fmt: skip
"""Role of each operator in a chain ``product, softmax, product``. Operators with the role ``_BETWEEN`` may also occur
between the two products."""
_LAYER: Final = re.compile(r"linear|addmm|\bfc\b|gemm_epilogue", re.IGNORECASE)
"""Names of operators and layers that multiply by weights. Such products are not part of attention."""
_SCORES: Final = 3
"""Least number of dimensions of the softmax input in attention."""


def find(facts: RuleInput) -> list[Candidate]:
    trace = facts.trace
    if not trace.has_values("op_name"):
        raise NotEvaluableError(message("the recording has no operators whose names perfkit knows"))
    chains, count = chain_rows(trace)
    both = np.concatenate([chains, backward_of(trace, chains)])
    if not facts.on_device:
        return _on_host(facts, both, chains, count)
    work = launched_within(trace, both)
    spent = facts.covered_ns(work)
    if not facts.exceeds(spent, facts.thresholds.attention_share):
        return []
    return [Candidate(
        facts.plural(
            "Attention runs as separate products and softmax {count:count} time {per_step}. This takes {time} on the "
            "device.",
            "Attention runs as separate products and softmax {count:count} times {per_step}. This takes {time} on the "
            "device.",
            facts.per_step(count), time=facts.of_step(spent),
        ),
        evidence={"chains": count, **facts.part("device", spent), "kernels": len(work)},
        rows=chains,
        transforms=(Scale(work, _FUSED, below=False, host=False),),
        ceiling_ns=round(spent),
        preconditions=(_BETWEEN_PRODUCTS,),
        vetoes=(message("attention that is already fused"),),
        assumptions=assume(device_factor=_FUSED),
        risks=_RISKS,
    )]  # fmt: skip


def _on_host(facts: RuleInput, rows: arrays.IntArray, chains: arrays.IntArray, count: int) -> list[Candidate]:
    spent = facts.mean_ns(rows)
    if not facts.exceeds(spent, facts.thresholds.attention_share):
        return []
    return [Candidate(
        facts.plural(
            "Attention runs as separate products and softmax {count:count} time {per_step}. This takes {time}.",
            "Attention runs as separate products and softmax {count:count} times {per_step}. This takes {time}.",
            facts.per_step(count), time=facts.of_step(spent),
        ),
        evidence={"chains": count, **facts.part("attention", spent)},
        rows=chains,
        transforms=(Scale(rows, _FUSED_ON_HOST),),
        ceiling_ns=round(spent),
        preconditions=(_BETWEEN_PRODUCTS,),
        vetoes=(message("attention that is already fused"),),
        assumptions=assume(host_factor=_FUSED_ON_HOST),
        risks=_RISKS,
        needs_remedy=True,
    )]  # fmt: skip


def chain_rows(trace: Trace) -> tuple[arrays.IntArray, int]:
    """Return the rows of the operators in chains of product, softmax and product, and the number of chains."""
    order, canonical = operator_order(trace), trace.codes("op_name")
    role = canonical.lookup(np.array([_ROLES.get(name, _OTHER) for name in canonical.values], np.int64), _OTHER)
    role = role[order.row]
    # products with weights are not part of attention; the name of their operator or layer shows the weights
    weighted = matching(trace, "name", _LAYER.search)
    call = nesting.nearest_above(trace.ints("parent"), trace.rows("kind", FORWARD))[order.row]
    layers = weighted[order.row] | ((call >= 0) & weighted[call])
    role = np.where((role == _PRODUCT) & layers, _OTHER, role)
    at = np.arange(len(role))
    dimensions = per_row(trace, order.row, lambda shapes: len(shapes[0]) if shapes and shapes[0] else _SCORES, _SCORES)
    softmax = np.flatnonzero((role == _SOFTMAX) & (dimensions >= _SCORES))
    # before, after: the nearest operators around each softmax that must not lie between the two products
    closed = role != _BETWEEN
    before = np.append(-1, np.maximum.accumulate(np.where(closed, at, -1)))[softmax]
    following = np.minimum.accumulate(np.where(closed, at, len(role))[::-1])[::-1]
    after = np.append(following, len(role))[softmax + 1]
    after = np.where(after < len(role), after, -1)
    complete = order.same_thread(before, softmax) & order.same_thread(after, softmax)
    complete &= (np.append(role, 0)[before] == _PRODUCT) & (np.append(role, 0)[after] == _PRODUCT)
    change = np.zeros(len(role) + 1, np.int64)  # +1 where a chain begins, -1 after it; cumsum > 0 within chains
    np.add.at(change, before[complete], 1)
    np.add.at(change, after[complete] + 1, -1)
    return order.row[np.cumsum(change)[:-1] > 0], int(complete.sum())
