"""Which host events compute, rather than dispatch, infer shapes or prepare data?

- a detail of an operator whose name says so (``conv2d compute``, ``conv2d kernel launch``),
- the innermost operator that works, where no details were recorded in it: its canonical name stands for arithmetic, or
  it has none and is no leaf. What ``aten::addmm`` calls to allocate, copy or view belongs to it.
- a leaf: an operator in which no operator and no detail was recorded.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core import nesting, patterns
from perfkit_core.analyses.once import once
from perfkit_core.operator_names import CANONICAL, GRADIENT_SUFFIX
from perfkit_core.schema import OPERATOR_DETAIL
from perfkit_core.trace import BoolArray, Trace

_COMPUTES: Final = "(?i)compute$|kernel ?launch$"
_NO_ARITHMETIC: Final = frozenset(
    {"reshape", "transpose", "expand", "concat", "split", "stack", "slice", "gather", "index", "tile", "flip", "roll",
     "alias", "diagonal", "copy", "cast", "contiguous", "fill", "arange", "assign", "item", "fetch", "metadata",
     "wait_event", "wait_collective", "collective_call", "accumulate_grad", "optimizer_update"}
)  # fmt: skip
"""Canonical names of movement and creation, and of what stands for many operators: what is inside of them computes."""


@once
def computing(trace: Trace) -> BoolArray:
    """True for the host events that compute, shape (rows,). They can lie in each other: take their union."""
    operators, details = trace.operators, trace.host & trace.rows("kind", OPERATOR_DETAIL)
    name = trace.codes("name")
    says = details & name.lookup(patterns.matches(name.values, _COMPUTES), False)
    leaf = operators & ~_holds(trace, operators | details)
    arithmetic, unnamed = _by_name(trace)
    works = operators & (arithmetic | (unnamed & ~leaf))
    found: BoolArray = says | leaf | (works & ~_holds(trace, works) & ~_holds(trace, details))
    return found


def _by_name(trace: Trace) -> tuple[BoolArray, BoolArray]:
    """Where the canonical name stands for arithmetic, and where there is none."""
    codes = trace.codes("op_name")
    known = [name.removesuffix(GRADIENT_SUFFIX) in CANONICAL - _NO_ARITHMETIC for name in codes.values]
    arithmetic: BoolArray = codes.lookup(np.array(known, np.bool_), False)
    return arithmetic, codes.codes < 0


def _holds(trace: Trace, events: BoolArray) -> BoolArray:
    """True for rows with one of the events strictly inside."""
    return nesting.holds(trace.ints("parent"), events)
