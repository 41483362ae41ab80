"""Rule 25, layout-transposes: tensors are copied only to change their memory layout.
Detected: kernels whose names say that they convert the layout, and operators that only reorder data. The two kinds are
separate advice.
Predicted: the step time without most of this work."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.advice.operators import kernels, launched, launched_within, matching, operators, within
from perfkit_core.advice.rule_input import Candidate, RuleInput, assume
from perfkit_core.base.algorithms import arrays, nesting
from perfkit_core.base.language.messages import message
from perfkit_core.causes.labels import CONVERTS
from perfkit_core.replay.transforms import Quantity, Scale
from perfkit_core.trace.model.trace import Trace

_CONVERSIONS_LEFT: Final = Quantity(0.0, 0.1, 0.5, message("estimate: the batch and some results are still converted"))
_COPIES_LEFT: Final = Quantity(0.0, 0.25, 0.8, message("estimate: some kernels can only read contiguous tensors"))
_CONVOLUTIONS: Final = ("conv", "conv_grad", "conv_transpose", "conv_transpose_grad")
_REORDERS: Final = ("contiguous", "reshape", "transpose")


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_device()
    trace, launched_by = facts.trace, facts.trace.ints("launched_by")
    # the outermost operators that only reorder data and launch device work
    outer = nesting.outermost(trace.ints("parent"), operators(trace) & trace.rows("op_name", *_REORDERS))
    reordering = np.unique(outer[launched_by[launched(trace)]])
    reordering = reordering[reordering >= 0]
    copies = launched_within(trace, reordering)
    conversions = np.setdiff1d(converting(trace), copies)
    if facts.covered_ns(np.union1d(conversions, copies)) <= facts.thresholds.layout_share * facts.busy_ns:
        return []
    candidates = []
    if len(conversions):
        # True if convolutions launch most conversions. If no launches were recorded: True if there is a convolution.
        convolutions, launches = trace.rows("op_name", *_CONVOLUTIONS), launched_by[conversions]
        inside = within(trace, np.flatnonzero(convolutions))[launches[launches >= 0]]
        convolves = inside.mean() > 0.5 if len(inside) else convolutions.any()
        spent = facts.covered_ns(conversions)
        candidates.append(Candidate(
            message("Kernels that only convert the layout of tensors take {time}.", time=facts.of_busy(spent)),
            evidence=_evidence(facts, spent, conversions),
            rows=conversions,
            transforms=(Scale(with_launches(trace, conversions), _CONVERSIONS_LEFT, below=False),),
            ceiling_ns=round(spent),
            preconditions=(message("the kernels' names say that they only change the layout"),),
            assumptions=assume(conversions_left=_CONVERSIONS_LEFT),
            risks=(message("Operators without a kernel for the new layout convert to the old layout and back."),),
            words={"layout": "convolutions" if convolves else "others"},
        ))  # fmt: skip
    if len(copies):
        spent = facts.covered_ns(copies)
        candidates.append(Candidate(
            message("Operators that only reorder the elements of tensors take {time}.", time=facts.of_busy(spent)),
            evidence=_evidence(facts, spent, copies),
            rows=reordering,
            transforms=(Scale(reordering, _COPIES_LEFT),),
            ceiling_ns=round(spent),
            preconditions=(message("only the order of the elements changes"),),
            assumptions=assume(copies_left=_COPIES_LEFT),
            risks=(message("Kernels that then read tensors in the original order may become slower."),),
            words={"layout": "copies"},
        ))  # fmt: skip
    return candidates


def converting(trace: Trace) -> arrays.IntArray:
    """Return the rows of the kernels whose names say that they change the layout."""
    rows = kernels(trace)
    return rows[matching(trace, "name", CONVERTS.search)[rows]]


def with_launches(trace: Trace, rows: arrays.IntArray) -> arrays.IntArray:
    """Return the ``rows`` of device work, followed by the rows of the calls that launched only this work."""
    launched_by = trace.ints("launched_by")
    in_rows = np.bincount(launched_by[rows][launched_by[rows] >= 0], minlength=len(trace))
    every = np.bincount(launched_by[launched(trace)], minlength=len(trace))
    return np.concatenate([rows, np.flatnonzero((in_rows > 0) & (in_rows == every))])


def _evidence(facts: RuleInput, spent: float, work: arrays.IntArray) -> dict[str, float]:
    return {
        "layout_ns": round(spent), "layout_ratio": spent / max(facts.busy_ns, 1), "busy_ns": round(facts.busy_ns),
        "step_ns": facts.step_ns, "kernels": len(work),
    }  # fmt: skip
