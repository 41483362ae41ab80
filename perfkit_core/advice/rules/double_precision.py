"""Rule 39, double-precision: operators compute in 64 bits.
Detected: operators with tensors of type double, outside of data loading.
Predicted: the step time in single precision. Large operators take about half of their time."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.advice.calls import call_ns
from perfkit_core.advice.facts import Candidate, Facts, NotEvaluableError, assume
from perfkit_core.advice.operators import matching, operator_order
from perfkit_core.language.messages import message
from perfkit_core.recording.environment import DTYPE
from perfkit_core.replay.transforms import Quantity, Scale

_SINGLE: Final = Quantity(
    0.4, 0.55, 0.8, message("single precision has half the bytes, and vector units process twice as many numbers")
)
_DOUBLE: Final = "float64"


def find(facts: Facts) -> list[Candidate]:
    trace, order, dur = facts.trace, operator_order(facts.trace), facts.trace.ints("dur_ns")
    default = trace.meta.extra.get(DTYPE)
    if trace.known("dtypes"):
        double = matching(trace, "dtypes", lambda text: '"double"' in text or '"float64"' in text)
    elif default is not None:
        double = np.full(len(trace), default == _DOUBLE)
    else:
        raise NotEvaluableError(message("no dtypes were recorded"), message("record shapes (record_shapes=True)"))
    rows = order.row[(double & facts.in_steps)[order.row]]
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
