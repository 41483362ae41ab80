"""Rule 26, conv-autotune: the library guesses the algorithm of convolutions whose shapes never change.
Detected: a recorded argument disables the search for the fastest algorithm, and all steps have the same shapes.
Predicted: the step time if the convolution kernels use the fastest algorithm."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from perfkit_core.advice.matrix_products import matrix_kernels
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput, assume
from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.base.language.messages import message
from perfkit_core.replay.transforms import Quantity, Scale
from perfkit_core.trace.model.trace import Trace

_KERNEL_FACTOR: Final = Quantity(
    0.7, 0.95, 1.0, message("estimate: the library's guess is often already the fastest algorithm")
)
_FLAGS: Final = {("cudnn_convolution", 9): 6, ("miopen_convolution", 9): 7, ("_convolution", 13): 9}
"""Operators with an argument that enables the search for the fastest algorithm, from the signatures of ATen. The key is
the end of the operator's name and its number of arguments. The value is the position of the enabling argument."""


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_device()
    trace, busy = facts.trace, facts.busy_ns
    rows = convolution_kernels(trace)
    spent = facts.covered_ns(rows)
    if spent <= facts.thresholds.convolution_share * busy:
        return []
    facts.need("shapes", message("ask the profiler for shapes (record --shapes)"))
    if algorithms_tried(trace):
        return []
    convolutions = np.flatnonzero(trace.host & trace.rows("op_name", "conv") & (trace.ints("step") >= 0))
    pairs = np.stack([trace.ints("step")[convolutions], trace.codes("shapes").codes[convolutions]], axis=1)
    pairs = np.unique(pairs, axis=0)
    first = np.unique(pairs[:, 0], return_index=True)[1]
    if len(first) < 2:
        raise NotEvaluableError(
            message("fewer than two steps contain convolutions, so their shapes cannot be compared")
        )
    if len({tuple(shapes) for shapes in np.split(pairs[:, 1], first[1:])}) > 1:
        return []
    return [Candidate(
        message(
            "Convolutions take {time}. Their shapes never change, but the library only guesses their algorithms.",
            time=facts.of_busy(spent),
        ),
        evidence={
            "convolution_ns": round(spent), "convolution_ratio": spent / max(busy, 1), "busy_ns": round(busy),
            "step_ns": facts.step_ns, "kernels": len(rows),
        },
        rows=rows,
        transforms=(Scale(rows, _KERNEL_FACTOR, below=False, host=False),),
        ceiling_ns=round(spent),
        preconditions=(
            message("the shapes are the same in every step"),
            message("the recorded arguments disable the search for the fastest algorithm"),
        ),
        assumptions=assume(kernel_factor=_KERNEL_FACTOR),
        risks=(
            message("The first steps take longer."), message("Some algorithms need more memory."),
            message("Repeated runs may choose different algorithms and round differently."),
        ),
    )]  # fmt: skip


def convolution_kernels(trace: Trace) -> IntArray:
    """Return the rows of convolution kernels, recognised by their name or by the operator that launched them."""
    kernels = matrix_kernels(trace)
    operators = np.append(trace.rows("op_name", "conv", "conv_grad", "conv_transpose", "conv_transpose_grad"), False)
    rows: IntArray = kernels.row[kernels.convolves | operators[kernels.operator]]
    return rows


def algorithms_tried(trace: Trace) -> bool:
    """Return whether the recorded arguments enable the algorithm search. Raises NotEvaluableError if there are none."""
    flags = []
    for code, name in enumerate(trace.codes("name").values):
        endings = {count: at for (ending, count), at in _FLAGS.items() if name.endswith(f":{ending}")}
        if not endings:
            continue
        # the first operator of each name is enough, because the setting applies to the process
        row = np.flatnonzero(trace.codes("name").codes == code)[:1]
        text = trace.pick("args", row).to_pylist()[0] if len(row) else None
        try:
            arguments = msgspec.json.decode(text or "{}").get("Concrete Inputs", [])
        except msgspec.DecodeError:
            continue
        if len(arguments) in endings:
            flags.append(arguments[endings[len(arguments)]] == "True")
    if not flags:
        raise NotEvaluableError(
            message("the setting for the search of convolution algorithms was not recorded"),
            message("newer profilers record this setting if they record shapes"),
        )
    return any(flags)
