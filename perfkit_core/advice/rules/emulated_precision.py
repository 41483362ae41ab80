"""Rule 40, emulated-precision: the processor has no instructions for the reduced precision of an operator.
Detected: products and convolutions on the host in bfloat16 or float16, on a processor that only emulates the type.
Predicted: the step time in single precision."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

import numpy as np

from perfkit_core.advice.operators import matching, operator_order, operators
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput, assume
from perfkit_core.base.algorithms import nesting
from perfkit_core.base.language.messages import message
from perfkit_core.replay.transforms import Quantity, Remove, Scale
from perfkit_core.trace.model.meta import HOST, INSTRUCTIONS

_SINGLE: Final = Quantity(
    0.04, 0.15, 0.6, message("estimate: emulated products take several times as long as products in single precision")
)
_NATIVE: Final = {
    "bfloat16": {"avx512_bf16", "amx_bf16", "bf16", "i8mm"},
    "float16": {"avx512_fp16", "amx_fp16", "fphp", "asimdhp"},
}
"""Processor flags of which any says that products of the type need no emulation."""
_NAMES: Final = {"bfloat16": re.compile(r"bfloat16", re.IGNORECASE), "float16": re.compile(r"half|(?<!b)float16", re.I)}
_PRODUCTS: Final = ("matmul", "linear", "bmm", "conv", "attention", "einsum", "rnn")


def find(facts: RuleInput) -> list[Candidate]:
    trace = facts.trace
    if facts.on_device:
        return []
    host = trace.meta.extra.get(HOST)
    instructions = host.get(INSTRUCTIONS) if isinstance(host, dict) else None
    if not isinstance(instructions, Collection):
        raise NotEvaluableError(message("the instructions of the processor were not recorded"))
    if not trace.has_values("dtypes"):
        raise NotEvaluableError(message("no dtypes were recorded"), message("record shapes (record_shapes=True)"))
    order, canonical = operator_order(trace), trace.codes("op_name")
    product = np.array([name.removesuffix("_grad") in _PRODUCTS for name in canonical.values], np.bool_)
    product = canonical.lookup(product, False)
    for dtype, native in _NATIVE.items():
        if native & set(instructions):
            continue
        reduced = matching(trace, "dtypes", _NAMES[dtype].search) & operators(trace) & facts.in_steps
        products = reduced & product
        rows = order.row[(products | nesting.holds(trace.ints("parent"), products))[order.row]]
        spent = facts.mean_ns(rows)
        if not facts.exceeds(spent, facts.thresholds.emulated_share):
            continue
        casts = order.row[(reduced & trace.rows("op_name", "cast", "copy"))[order.row]]
        return [Candidate(
            message(
                "Products in {dtype} take {time}, and this processor has no instructions for them.",
                dtype=dtype, time=facts.of_step(spent),
            ),
            evidence={"operators": len(rows), "dtype": dtype, "casts": len(casts), **facts.part("reduced", spent)},
            rows=rows,
            transforms=(Scale(rows, _SINGLE), Remove(casts)),
            ceiling_ns=round(spent + facts.mean_ns(casts)),
            preconditions=(message("the processor lacks instructions for {dtype}", dtype=dtype),),
            assumptions=assume(single_factor=_SINGLE),
            conflicts=("casts",),
            fill={"dtype": dtype},
        )]  # fmt: skip
    return []
