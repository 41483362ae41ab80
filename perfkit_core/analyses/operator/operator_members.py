"""Which events are rows of the operator tree, and below which operator?

Ours: the outermost operators are the roots; below each what it contains (nested operators, recorded details), and the
device work under the innermost of them around its launch. Natively (Paddle's Operator Summary) every operator is a
root, nested ones too; below are its direct children that are no operators, and what these or it launched themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit_core import nesting
from perfkit_core.analyses import attribution
from perfkit_core.analyses.operator.own_time import is_call
from perfkit_core.analyses.operator.spans import chosen
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.schema import (
    DEVICE_WORK,
    NESTED_KINDS,
    NO_ROW,
    OPERATOR,
    OPERATOR_DETAIL,
    OPERATOR_KINDS,
    RUNTIME,
    SYNC,
)
from perfkit_core.trace import BoolArray, IntArray, Trace


@dataclass(frozen=True, slots=True)
class Members:
    """``root`` and ``inner`` host events (``inner`` without the roots), and ``parent``, which ends at the roots, of
    shape (rows,); ``work``: rows of the device work below them, and ``holder``: the host row that each hangs on."""

    root: BoolArray
    inner: BoolArray
    parent: IntArray
    work: IntArray
    holder: IntArray


def members(trace: Trace, request: ViewRequest) -> Members:
    """The events of the tree. Raises UsageError."""
    root, inner = (_native if request.native else _ours)(trace, chosen(trace, request))
    parent = np.where(root, NO_ROW, trace.ints("parent"))
    owner = attribution.owners(trace)
    work = np.flatnonzero(trace.rows("kind", *DEVICE_WORK) & (owner != NO_ROW))
    shown = root | inner
    holder = owner[work] if request.native else nesting.nearest_on_path(parent, shown)[owner[work]]
    kept = (holder != NO_ROW) & shown[holder]
    return Members(root, inner, parent, work[kept], holder[kept])


def _ours(trace: Trace, counted: BoolArray) -> tuple[BoolArray, BoolArray]:
    operators = trace.host & trace.rows("kind", *OPERATOR_KINDS) & is_call(trace)
    parent, root = trace.ints("parent"), operators & counted
    root &= ~nesting.lies_in(parent, root)
    inside = nesting.lies_in(parent, root)
    return root, inside & (operators | (trace.host & trace.rows("kind", OPERATOR_DETAIL)))


def _native(trace: Trace, counted: BoolArray) -> tuple[BoolArray, BoolArray]:
    operators, parent = trace.host & trace.rows("kind", OPERATOR), trace.ints("parent")
    root = operators & counted
    others = trace.host & trace.rows("kind", *(NESTED_KINDS - {OPERATOR, RUNTIME, SYNC}))
    return root, others & (parent != NO_ROW) & root[parent]
