"""Rule 25: tensors are written anew only to lie otherwise in memory."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core import nesting
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Assumption, Candidate
from perfkit_core.advice.rules.device_time import (
    busy_ns,
    covered_ns,
    kernels,
    launched_within,
    of_busy,
    with_launches,
)
from perfkit_core.advice.rules.operator_order import within
from perfkit_core.advice.rules.phrases import millis
from perfkit_core.language import in_english, say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.edits.durations import Scale
from perfkit_core.replay.quantity import Quantity
from perfkit_core.schema import OPERATOR
from perfkit_core.trace import IntArray, Trace

CONVERTED: Final = Quantity(0.0, 0.1, 0.5, in_english("prior: the batch and some results are still converted"))
"""What is left of conversions around convolutions once the model keeps the layout of their kernels."""
REORDERED: Final = Quantity(0.0, 0.25, 0.8, in_english("prior: some kernels read only dense tensors"))
"""What is left of copies that only reorder."""
_CONVERTS: Final = re.compile(
    r"nchw_?to_?nhwc|nhwc_?to_?nchw|batched_transpose|transpose_?\w*kernel|trans_?layout|tilingswapdim|swapdim", re.I
)
_CONVOLUTIONS: Final = ("conv", "conv_grad", "conv_transpose", "conv_transpose_grad")
_REORDERS: Final = ("contiguous", "reshape", "transpose")


def find(facts: Facts) -> list[Candidate]:
    """Transposes take a share of the time in which the device works: those that libraries put around convolutions, and
    those that the model asks for."""
    facts.need_device()
    asked = reordering(facts.trace)
    copies = launched_within(facts.trace, within(facts.trace, asked))
    converted = np.setdiff1d(converting(facts.trace), copies)
    busy, taken = busy_ns(facts), covered_ns(facts, np.union1d(converted, copies))
    if taken <= facts.thresholds.layout_share * busy:
        return []
    return [
        *([_converted(facts, converted, busy)] if len(converted) else []),
        *([_reordered(facts, asked, copies, busy)] if len(copies) else []),
    ]


def converting(trace: Trace) -> IntArray:
    """Rows of the kernels whose names say that they change the layout."""
    names, rows = trace.codes("name"), kernels(trace)
    found = names.lookup(np.array([bool(_CONVERTS.search(name)) for name in names.values], np.bool_), False)
    chosen: IntArray = rows[found[rows]]
    return chosen


def reordering(trace: Trace) -> IntArray:
    """Rows of the outermost operators that only reorder, and launched work for it."""
    wanted = trace.host & trace.rows("kind", OPERATOR) & trace.rows("op_name", *_REORDERS)
    parent = trace.ints("parent")
    outer = nesting.outermost(parent, wanted)
    work = launched_within(trace, np.ones(len(trace), np.bool_))
    found = outer[trace.ints("launched_by")[work]]
    return np.unique(found[found >= 0])


def _converted(facts: Facts, rows: IntArray, busy: float) -> Candidate:
    taken = covered_ns(facts, rows)
    return Candidate(
        say(
            "kernels that only convert the layout of tensors take {taken} of {busy}",
            taken=millis(taken),
            busy=of_busy(facts, busy),
        ),
        evidence=_evidence(facts, taken, busy, len(rows)),
        rows=rows,
        edits=(Scale(with_launches(facts.trace, rows), CONVERTED, below=False),),
        ceiling_ns=round(taken),
        preconditions=(say("the kernels' names say that they only change the layout"),),
        assumptions=(Assumption("conversions_left", CONVERTED, CONVERTED.source),),
        risks=(say("operators without kernels for the other layout convert there and back"),),
        words={"layout": "convolutions" if _convolves(facts.trace, rows) else "others"},
    )


def _reordered(facts: Facts, operators: IntArray, work: IntArray, busy: float) -> Candidate:
    taken = covered_ns(facts, work)
    return Candidate(
        say(
            "operators that only copy tensors in another order take {taken} of {busy}",
            taken=millis(taken),
            busy=of_busy(facts, busy),
        ),
        evidence=_evidence(facts, taken, busy, len(work)),
        rows=operators,
        edits=(Scale(operators, REORDERED),),
        ceiling_ns=round(taken),
        preconditions=(say("nothing but the order of the elements changes"),),
        assumptions=(Assumption("copies_left", REORDERED, REORDERED.source),),
        risks=(say("kernels that read a reordered tensor as it lies may become slower"),),
        words={"layout": "copies"},
    )


def _convolves(trace: Trace, rows: IntArray) -> bool:
    """Whether most of the kernels are part of a convolution; where no launch is recorded, whether anything is one."""
    launched_by = trace.ints("launched_by")[rows]
    launches = launched_by[launched_by >= 0]
    convolutions = trace.rows("op_name", *_CONVOLUTIONS)
    if not len(launches):
        return bool(convolutions.any())
    return bool((within(trace, np.flatnonzero(convolutions))[launches]).mean() > 0.5)


def _evidence(facts: Facts, taken: float, busy: float, count: int) -> dict[str, float]:
    return {
        "layout_ns": round(taken), "layout_ratio": taken / max(busy, 1), "busy_ns": round(busy),
        "step_ns": facts.step_ns, "kernels": count,
    }  # fmt: skip


RULES: Final = (Rule("layout-transposes", 25, 1, "Keep one layout of tensors", find),)
