"""Find loops: operators that a training calls again and again in the same order.

Operators of a thread are cut where the step or the phase changes. A run of equal groups of operators is a loop. Its
groups are then replaced by one symbol, and the search is repeated. So a loop around loops is found, even if the inner
loops have different numbers of rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.advice.operators import OperatorOrder, operator_order
from perfkit_core.base.algorithms.arrays import BoolArray, IntArray
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.schema import BACKWARD, OPTIMIZER
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.steps.activity import step_threads

LONGEST: Final = 64
"""Maximum number of symbols in a round."""
_LEVELS: Final = 4
"""Maximum depth of nested loops."""
_CUT: Final = -1


@dataclass(frozen=True, slots=True)
class Loop:
    """Rounds of the same operators, one after the other, in one step.

    - ``first``, ``last``: range of the operators in ``OperatorOrder.row``, ``last`` excluded
    - ``rounds``: number of rounds of the outermost loop
    - ``body``: number of operators in one round, in which each inner loop has one round
    - ``kind``: loops with the same operators in their rounds have the same kind
    """

    first: int
    last: int
    rounds: int
    body: int
    kind: int

    @property
    def operators(self) -> int:
        return self.last - self.first


@once
def forward_loops(trace: Trace) -> tuple[Loop, ...]:
    """Return the loops of the threads with steps, outside of backward passes and updates, sorted by their begin. A loop
    precedes the loops in it."""
    order = operator_order(trace)
    return _loops(trace, order, (step_threads(trace) & ~trace.rows("phase", BACKWARD, OPTIMIZER))[order.row])


@once
def backward_loops(trace: Trace) -> tuple[Loop, ...]:
    """Return the loops of backward passes."""
    order = operator_order(trace)
    return _loops(trace, order, trace.rows("phase", BACKWARD)[order.row])


def outermost_loops(loops: Sequence[Loop]) -> list[Loop]:
    """Return the loops that lie in no other loop. A loop must precede the loops in it."""
    outer: list[Loop] = []
    for loop in loops:
        if not outer or loop.first >= outer[-1].last:
            outer.append(loop)
    return outer


def _loops(trace: Trace, order: OperatorOrder, chosen: BoolArray) -> tuple[Loop, ...]:
    at = np.flatnonzero(chosen & (trace.ints("step")[order.row] >= 0))
    if len(at) < 2:
        return ()
    step, thread = trace.ints("step")[order.row[at]], order.thread[at]
    cut = (np.diff(step) != 0) | (np.diff(thread) != 0) | (np.diff(at) != 1)
    # a cut is a symbol of its own, which equals no other
    symbol = trace.codes("name").codes[order.row[at]].astype(np.int64)
    where = np.flatnonzero(cut) + 1
    symbol = np.insert(symbol, where, _CUT - np.arange(len(where)))
    first = np.insert(at, where, at[where])
    last = first + 1  # the range of the operators of each symbol
    size = np.insert(np.ones(len(at), np.int64), where, 0)
    loops: list[Loop] = []
    kinds: dict[tuple[int, ...], int] = {}
    for _ in range(_LEVELS):
        runs = _runs(symbol)
        if not runs:
            break
        keep = np.ones(len(symbol), np.bool_)
        for begin, stop, period in runs:
            body = tuple(symbol[begin : begin + period].tolist())
            # a loop is the same loop wherever its first round seems to begin
            least = min(body[at:] + body[:at] for at in range(period))
            kind = kinds.setdefault(least, len(trace.codes("name").values) + len(kinds))
            operators = int(size[begin : begin + period].sum())
            low, high = int(first[begin]), int(last[stop - 1])
            loops.append(Loop(low, high, (stop - begin) // period, operators, kind))
            symbol[begin], size[begin], last[begin] = kind, operators, high
            keep[begin + 1 : stop] = False
        symbol, first, last, size = symbol[keep], first[keep], last[keep], size[keep]
    return tuple(sorted(loops, key=lambda loop: (loop.first, -loop.last)))


def _runs(symbol: IntArray) -> list[tuple[int, int, int]]:
    """Return the runs of at least ``LEAST`` equal groups: begin, end and length of a group. Shorter groups come first,
    and runs do not overlap."""
    used = np.zeros(len(symbol), np.bool_)
    runs: list[tuple[int, int, int]] = []
    for period in range(1, min(LONGEST, len(symbol) // LEAST) + 1):
        equal = np.append(symbol[:-period] == symbol[period:], False)
        edges = np.diff(np.concatenate([[0], equal.astype(np.int8)]))
        begins, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
        long = ends - begins >= (LEAST - 1) * period
        for begin, end in zip(begins[long].tolist(), ends[long].tolist(), strict=True):
            stop = begin + (end - begin + period) // period * period
            if not used[begin:stop].any():
                used[begin:stop] = True
                runs.append((begin, stop, period))
    return sorted(runs)


LEAST: Final = 4
"""Minimum number of rounds of a loop."""
