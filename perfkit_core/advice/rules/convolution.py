"""Rule 26: convolutions of fixed shapes, whose algorithm is guessed rather than tried."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Assumption, Candidate, NotEvaluableError
from perfkit_core.advice.rules.device_time import busy_ns, covered_ns, of_busy
from perfkit_core.advice.rules.kernel_words import multiplying
from perfkit_core.advice.rules.phrases import millis
from perfkit_core.language import in_english, say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.edits.durations import Scale
from perfkit_core.replay.quantity import Quantity
from perfkit_core.trace import IntArray, Trace

TRIED: Final = Quantity(0.7, 0.95, 1.0, in_english("prior: the guess is often the best algorithm already"))
"""Factor of convolution kernels once the fastest of all algorithms is taken."""
_FLAGS: Final = {("cudnn_convolution", 9): 6, ("miopen_convolution", 9): 7, ("_convolution", 13): 9}
"""End of an operator's name and number of its recorded arguments → which of them says that all algorithms are tried
(signatures of ATen: cudnn_convolution, miopen_convolution, _convolution)."""
_ARGUMENTS: Final = "Concrete Inputs"


def find(facts: Facts) -> list[Candidate]:
    """Convolutions take a share of the time in which the device works, have the same shapes in every step, and nothing
    told the library to try their algorithms."""
    facts.need_device()
    rows, busy = convolution_kernels(facts.trace), busy_ns(facts)
    taken = covered_ns(facts, rows)
    if taken <= facts.thresholds.convolution_share * busy:
        return []
    facts.need("shapes", say("ask the profiler for shapes (record --shapes); whether they stay the same is unknown"))
    if algorithms_tried(facts.trace) or not _same_in_all_steps(facts):
        return []
    return [_candidate(facts, rows, taken, busy)]


def convolution_kernels(trace: Trace) -> IntArray:
    """Rows of the kernels that compute convolutions: by their names, or launched by such an operator."""
    found = multiplying(trace)
    operators = np.append(trace.rows("op_name", "conv", "conv_grad", "conv_transpose", "conv_transpose_grad"), False)
    chosen: IntArray = found.row[found.convolves | operators[found.operator]]
    return chosen


def algorithms_tried(trace: Trace) -> bool:
    """Whether the library was told to try all algorithms. Raises NotEvaluableError where that was not recorded: the
    shapes and names of convolutions are the same either way."""
    names = trace.codes("name")
    told = [
        flag
        for (ending, count), at in _FLAGS.items()
        for code, name in enumerate(names.values)
        if name.endswith(f":{ending}") and (flag := _flag(trace, code, count, at)) is not None
    ]
    if not told:
        raise NotEvaluableError(
            say("whether all algorithms are tried was not recorded: newer profilers do, with shapes")
        )
    return any(told)


def _flag(trace: Trace, name: int, count: int, at: int) -> bool | None:
    """The flag of the first operator of a name. It is the same for all: it belongs to the process."""
    row = np.flatnonzero(trace.codes("name").codes == name)[:1]
    text = trace.pick("args", row).to_pylist()[0] if len(row) else None
    try:
        arguments = msgspec.json.decode(text or "{}").get(_ARGUMENTS, [])
    except msgspec.DecodeError:
        return None
    return arguments[at] == "True" if len(arguments) == count else None


def _same_in_all_steps(facts: Facts) -> bool:
    """Whether every step has convolutions of the same shapes. Raises NotEvaluableError."""
    trace = facts.trace
    rows = np.flatnonzero(trace.host & trace.rows("op_name", "conv") & (trace.ints("step") >= 0))
    pairs = np.unique(np.stack([trace.ints("step")[rows], trace.codes("shapes").codes[rows]], axis=1), axis=0)
    first = np.unique(pairs[:, 0], return_index=True)[1]
    if len(first) < 2:
        raise NotEvaluableError(
            say("convolutions of two steps at least are needed to tell whether their shapes stay the same")
        )
    return len({tuple(shapes) for shapes in np.split(pairs[:, 1], first[1:])}) == 1


def _candidate(facts: Facts, rows: IntArray, taken: float, busy: float) -> Candidate:
    return Candidate(
        say(
            "convolutions take {taken} of {busy}; their shapes stay, yet algorithms are guessed",
            taken=millis(taken), busy=of_busy(facts, busy),
        ),
        evidence={
            "convolution_ns": round(taken), "convolution_ratio": taken / max(busy, 1), "busy_ns": round(busy),
            "step_ns": facts.step_ns, "kernels": len(rows),
        },
        rows=rows,
        edits=(Scale(rows, TRIED, below=False, host=False),),
        ceiling_ns=round(taken),
        preconditions=(say("shapes are the same in every step"), say("recorded: algorithms are not tried")),
        assumptions=(Assumption("kernel_factor", TRIED, TRIED.source),),
        risks=(
            say("the first steps become longer"),
            say("the same run may add in another order"),
            say("more memory for workspaces"),
        ),
    )  # fmt: skip


RULES: Final = (Rule("conv-autotune", 26, 1, "Try all algorithms for convolutions", find),)
