"""Rule 39, double-precision: operators compute in 64 bits.
Detected: operators with tensors of type double, outside of data loading.
Predicted: the step time in single precision. Large operators take about half of their time."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from perfkit_core.advice import operators
from perfkit_core.advice.calls import call_ns
from perfkit_core.advice.operators import operator_order
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput, assume
from perfkit_core.base.algorithms import groupby
from perfkit_core.base.algorithms.arrays import BoolArray
from perfkit_core.base.language.messages import message
from perfkit_core.replay.transforms import Quantity, Scale
from perfkit_core.trace.model.meta import DTYPE
from perfkit_core.trace.model.trace import Trace

_SINGLE: Final = Quantity(
    0.4, 0.55, 0.8, message("single precision has half the bytes, and vector units process twice as many numbers")
)
_DOUBLE: Final = "float64"
_FLOATING: Final = ("double", "float", "c10::Half", "c10::BFloat16", "half", "float16", "bfloat16", "float32")


def _has_double_tensors(trace: Trace) -> BoolArray:
    """Return the mask of the events whose floating-point tensors all have 64 bits. Numbers in Python have 64 bits, too,
    but no dimensions."""
    shapes, dtypes = trace.codes("shapes"), trace.codes("dtypes")
    group, first = groupby.distinct([shapes.codes, dtypes.codes], len(trace))
    double = np.zeros(len(first), np.bool_)
    for number, (shape, dtype) in enumerate(zip(shapes.codes[first], dtypes.codes[first], strict=True)):
        if shape >= 0 and dtype >= 0 and "double" in dtypes.values[dtype]:
            types = msgspec.json.decode(dtypes.values[dtype], type=list[str])
            both = zip(operators.shapes_of(shapes.values[shape]), types, strict=False)
            tensors = [name for size, name in both if size and name in _FLOATING]
            double[number] = bool(tensors) and set(tensors) == {"double"}  # one mask among floats changes no arithmetic
    mask: BoolArray = double[group]
    return mask


def find(facts: RuleInput) -> list[Candidate]:
    trace, order, dur = facts.trace, operator_order(facts.trace), facts.trace.ints("dur_ns")
    default = trace.meta.extra.get(DTYPE)
    if trace.has_values("dtypes"):
        double = _has_double_tensors(trace)
    elif default is not None:
        double = np.full(len(trace), default == _DOUBLE)
    else:
        raise NotEvaluableError(message("no dtypes were recorded"), message("record shapes (record_shapes=True)"))
    rows = order.row[(double & facts.in_steps)[order.row]]
    rows = np.union1d(rows, operators.backward_of(trace, rows))  # gradients have the type of their tensors
    rows = rows[dur[rows] > 2 * call_ns(facts)]  # calls of operators on few elements take as long in any precision
    spent = facts.mean_ns(rows)
    if not facts.exceeds(spent, facts.thresholds.double_share):
        return []
    return [Candidate(
        message("Operators on 64-bit floating-point numbers take {time}.", time=facts.of_step(spent)),
        evidence={"operators": len(rows), **facts.part("double", spent)},
        rows=rows,
        transforms=(Scale(rows, _SINGLE),),
        ceiling_ns=round(spent),
        preconditions=(message("the tensors have 64 bits"),),
        assumptions=assume(single_factor=_SINGLE),
        risks=(message("Results have 7 instead of 16 digits. Some solvers and sums over many elements need more."),),
    )]  # fmt: skip
