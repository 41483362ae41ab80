"""Rule 25, layout-transposes: tensors are copied only to change their layout in memory.

Seen by: kernels whose names say that they convert the layout (libraries put them around convolutions), and operators
that only reorder and launch work for it, as a candidate each. Transform: most of this work goes.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core.advice.facts import Candidate, Facts, assume
from perfkit_core.advice.operators import kernels, launched, launched_within, matching, operators, within
from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.language.messages import message
from perfkit_core.model.schema import DEVICE_WORK
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.quantity import Quantity
from perfkit_core.replay.transforms.durations import Scale

_CONVERTED: Final = Quantity(0.0, 0.1, 0.5, message("prior: the batch and some results are still converted"))
"""Factor of conversions around convolutions once the model keeps the layout of their kernels."""
_REORDERED: Final = Quantity(0.0, 0.25, 0.8, message("prior: some kernels read only dense tensors"))
"""Factor of copies that only reorder."""
_CONVERTS: Final = re.compile(
    r"nchw_?to_?nhwc|nhwc_?to_?nchw|batched_transpose|transpose_?\w*kernel|trans_?layout|tilingswapdim|swapdim", re.I
)
_CONVOLUTIONS: Final = ("conv", "conv_grad", "conv_transpose", "conv_transpose_grad")
_REORDERS: Final = ("contiguous", "reshape", "transpose")


def find(facts: Facts) -> list[Candidate]:
    """Return a candidate for conversions, and one for copies that reorder, where both together take their share of the
    time in which the device works."""
    facts.need_device()
    trace = facts.trace
    reordering = _reordering(trace)
    copies = launched_within(trace, reordering)
    conversions = np.setdiff1d(converting(trace), copies)
    if facts.covered_ns(np.union1d(conversions, copies)) <= facts.thresholds.layout_share * facts.busy_ns:
        return []
    candidates = [_converted(facts, conversions)] if len(conversions) else []
    return candidates + ([_reordered(facts, reordering, copies)] if len(copies) else [])


def converting(trace: Trace) -> IntArray:
    """Return the rows of the kernels whose names say that they change the layout."""
    rows = kernels(trace)
    return rows[matching(trace, "name", _CONVERTS.search)[rows]]


def with_launches(trace: Trace, rows: IntArray) -> IntArray:
    """Return the rows of device work, and of the calls that launched it and nothing else."""
    launched_by = trace.ints("launched_by")
    work = launched_by[np.flatnonzero((launched_by >= 0) & trace.rows("kind", *DEVICE_WORK))]
    mine = launched_by[rows]
    wanted = np.bincount(mine[mine >= 0], minlength=len(trace))
    calls = np.flatnonzero((wanted > 0) & (wanted == np.bincount(work, minlength=len(trace))))
    return np.concatenate([rows, calls])


def _reordering(trace: Trace) -> IntArray:
    """Return the rows of the outermost operators that only reorder, and launched work for it."""
    wanted = operators(trace) & trace.rows("op_name", *_REORDERS)
    outer = nesting.outermost(trace.ints("parent"), wanted)
    rows = outer[trace.ints("launched_by")[launched(trace)]]
    return np.unique(rows[rows >= 0])


def _converted(facts: Facts, rows: IntArray) -> Candidate:
    spent = facts.covered_ns(rows)
    return Candidate(
        message("Kernels that only convert the layout of tensors take {time}.", time=facts.of_busy(spent)),
        evidence=_evidence(facts, spent, len(rows)),
        rows=rows,
        edits=(Scale(with_launches(facts.trace, rows), _CONVERTED, below=False),),
        ceiling_ns=round(spent),
        preconditions=(message("the kernels' names say that they only change the layout"),),
        assumptions=assume(conversions_left=_CONVERTED),
        risks=(message("Operators without kernels for the other layout convert there and back."),),
        words={"layout": "convolutions" if _convolves(facts.trace, rows) else "others"},
    )


def _reordered(facts: Facts, rows: IntArray, work: IntArray) -> Candidate:
    spent = facts.covered_ns(work)
    return Candidate(
        message("Operators that only copy tensors in another order take {time}.", time=facts.of_busy(spent)),
        evidence=_evidence(facts, spent, len(work)),
        rows=rows,
        edits=(Scale(rows, _REORDERED),),
        ceiling_ns=round(spent),
        preconditions=(message("only the order of the elements changes"),),
        assumptions=assume(copies_left=_REORDERED),
        risks=(message("Kernels that read a tensor in its original order may become slower."),),
        words={"layout": "copies"},
    )


def _convolves(trace: Trace, rows: IntArray) -> bool:
    """Return whether most of the kernels are part of a convolution; without launches, whether anything is."""
    launched_by = trace.ints("launched_by")[rows]
    launches = launched_by[launched_by >= 0]
    convolutions = trace.rows("op_name", *_CONVOLUTIONS)
    if not len(launches):
        return bool(convolutions.any())
    return bool(within(trace, np.flatnonzero(convolutions))[launches].mean() > 0.5)


def _evidence(facts: Facts, spent: float, count: int) -> dict[str, float]:
    return {
        "layout_ns": round(spent), "layout_ratio": spent / max(facts.busy_ns, 1), "busy_ns": round(facts.busy_ns),
        "step_ns": facts.step_ns, "kernels": count,
    }  # fmt: skip


RULE: Final = Rule("layout-transposes", 25, 1, "Keep one layout of tensors", find)
