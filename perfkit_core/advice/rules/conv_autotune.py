"""Rule 26, conv-autotune: the library guesses the algorithm of convolutions whose shapes never change. Condition:
convolution kernels, the same shapes in every step, and a recorded argument that disables trying algorithms. Transform:
the kernels take the time of the fastest algorithm."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from perfkit_core.advice.facts import Candidate, Facts, NotEvaluableError, assume
from perfkit_core.advice.matrix_products import matrix_kernels
from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.language.messages import message
from perfkit_core.model.trace import Trace
from perfkit_core.replay.transforms import Quantity, Scale

_TRIED: Final = Quantity(0.7, 0.95, 1.0, message("prior: the guess is often the best algorithm already"))
"""Factor of convolution kernels with the fastest algorithm."""
_FLAGS: Final = {("cudnn_convolution", 9): 6, ("miopen_convolution", 9): 7, ("_convolution", 13): 9}
"""End of an operator's name and number of its recorded arguments → index of the argument that enables trying all
algorithms (signatures of ATen: cudnn_convolution, miopen_convolution, _convolution)."""


def find(facts: Facts) -> list[Candidate]:
    facts.need_device()
    trace, busy = facts.trace, facts.busy_ns
    rows = convolution_kernels(trace)
    spent = facts.covered_ns(rows)
    if spent <= facts.thresholds.convolution_share * busy:
        return []
    facts.need(
        "shapes", message("ask the profiler for shapes (record --shapes); whether they stay the same is unknown")
    )
    if algorithms_tried(trace):
        return []
    convolutions = np.flatnonzero(trace.host & trace.rows("op_name", "conv") & (trace.ints("step") >= 0))
    pairs = np.stack([trace.ints("step")[convolutions], trace.codes("shapes").codes[convolutions]], axis=1)
    pairs = np.unique(pairs, axis=0)
    first = np.unique(pairs[:, 0], return_index=True)[1]
    if len(first) < 2:
        raise NotEvaluableError(
            message("convolutions of fewer than two steps were recorded, so whether their shapes change is unknown")
        )
    if len({tuple(shapes) for shapes in np.split(pairs[:, 1], first[1:])}) > 1:
        return []
    return [Candidate(
        message(
            "Convolutions take {time}; their shapes never change, but the library guesses their algorithms.",
            time=facts.of_busy(spent),
        ),
        evidence={
            "convolution_ns": round(spent), "convolution_ratio": spent / max(busy, 1), "busy_ns": round(busy),
            "step_ns": facts.step_ns, "kernels": len(rows),
        },
        rows=rows,
        transforms=(Scale(rows, _TRIED, below=False, host=False),),
        ceiling_ns=round(spent),
        preconditions=(
            message("shapes are the same in every step"),
            message("the recorded arguments say that algorithms are not tried"),
        ),
        assumptions=assume(kernel_factor=_TRIED),
        risks=(
            message("The first steps become longer."), message("Repeated runs may sum in a different order."),
            message("Workspaces need more memory."),
        ),
    )]  # fmt: skip


def convolution_kernels(trace: Trace) -> IntArray:
    """Return the rows of the convolution kernels, by name or by the launching operator."""
    kernels = matrix_kernels(trace)
    operators = np.append(trace.rows("op_name", "conv", "conv_grad", "conv_transpose", "conv_transpose_grad"), False)
    rows: IntArray = kernels.row[kernels.convolves | operators[kernels.operator]]
    return rows


def algorithms_tried(trace: Trace) -> bool:
    """Return whether the library was told to try all algorithms. Raises NotEvaluableError if that was not recorded:
    shapes and names are the same either way."""
    flags = []
    for code, name in enumerate(trace.codes("name").values):
        endings = {count: at for (ending, count), at in _FLAGS.items() if name.endswith(f":{ending}")}
        if not endings:
            continue
        # the first operator of a name is enough, because the flag is per process
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
            message("whether all algorithms are tried was not recorded"),
            message("newer profilers record it, with shapes"),
        )
    return any(flags)
