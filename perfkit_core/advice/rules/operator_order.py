"""Operators one after the other on each thread, as the model calls them: those that lie in no other operator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit_core import nesting
from perfkit_core.analyses.once import once
from perfkit_core.analyses.threads import threads
from perfkit_core.schema import DATALOADER, OPERATOR
from perfkit_core.trace import BoolArray, IntArray, Trace


@dataclass(frozen=True, slots=True)
class OperatorOrder:
    """``row`` of each outermost operator, by thread and time, and the code of its ``thread``; shape (operators,)."""

    row: IntArray
    thread: IntArray

    def same_thread(self, first: IntArray, second: IntArray) -> BoolArray:
        """True where two positions (−1: none) are on one thread."""
        found: BoolArray = (first >= 0) & (second >= 0) & (self.thread[first] == self.thread[second])
        return found


@once
def operator_order(trace: Trace) -> OperatorOrder:
    """The outermost operators of a trace, without those that load data."""
    operators = trace.host & trace.rows("kind", OPERATOR) & ~trace.rows("phase", DATALOADER)
    rows = np.flatnonzero(operators & ~nesting.lies_in(trace.ints("parent"), operators))
    thread = threads(trace).code[rows].astype(np.int64)
    order = np.lexsort((trace.ints("start_ns")[rows], thread))
    return OperatorOrder(rows[order], thread[order])


def within(trace: Trace, rows: IntArray) -> BoolArray:
    """True for the rows and all host events inside them, shape (rows of the trace,)."""
    chosen = np.zeros(len(trace), np.bool_)
    chosen[rows] = True
    found: BoolArray = chosen | nesting.lies_in(trace.ints("parent"), chosen)
    return found


def backward_of(trace: Trace, rows: IntArray) -> IntArray:
    """Rows of the outermost operators of the backward pass that the recorded links give for operators of the forward
    pass, shape (found,)."""
    sequence = trace.ints("sequence")
    wanted = np.unique(sequence[rows])
    order = operator_order(trace)
    backward = order.row[trace.rows("phase", "backward")[order.row]]
    return backward[np.isin(sequence[backward], wanted[wanted >= 0])]
