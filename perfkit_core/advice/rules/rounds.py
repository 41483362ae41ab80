"""Which selections of parts of a tensor are rounds of one loop?

Between two rounds the same operators run. A round may select several times, so what repeats is looked for among the
last few selections; a round is short, as layers of a network repeat, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core import grouped, nesting
from perfkit_core.advice.rules import calls
from perfkit_core.analyses.threads import threads
from perfkit_core.schema import ANNOTATION, BACKWARD, DATALOADER, FORWARD, OPTIMIZER, STEP
from perfkit_core.trace import BoolArray, IntArray, Trace

_LONGEST: Final = 24
"""Operators of a round at most: a cell of a recurrent network written by hand has about 20, a transformer's layer
more."""
_SELECTS: Final = 4
"""Selections of a round at most."""
_WORDS: Final = r"select|slice|narrow"
"""Not every view is one that was asked for: frameworks take strided views on their own account."""
_AROUND: Final = (STEP, ANNOTATION, FORWARD, BACKWARD, OPTIMIZER, DATALOADER)


@dataclass(frozen=True, slots=True)
class Rounds:
    """Selections that are rounds of loops, in the order of threads and time: rows, number of the loop of each, and how
    many selections a round of it has, arrays of shape (selections,)."""

    rows: IntArray
    loop: IntArray
    each: IntArray


def rounds(trace: Trace, least: float) -> Rounds:
    """The loops of at least so many rounds."""
    roots = _in_order(trace)
    selecting = calls.named(trace, _WORDS) & trace.rows("op_name", "slice") & ~trace.rows("phase", BACKWARD, OPTIMIZER)
    selects = np.flatnonzero(selecting[roots])
    place, body, length = _place(trace, roots[selects]), _bodies(trace, roots, selects), np.diff(selects, append=0)
    each = np.zeros(len(selects), np.int64)
    begins = np.zeros(len(selects), np.bool_)
    for period in range(1, min(_SELECTS, len(selects) - 2) + 1):
        start, end = _runs(_repeats(place, body, length, period), period)
        often = (end - start) // period >= least
        for low, high in zip(start[often], end[often], strict=True):
            if not each[low:high].any():
                each[low:high] = period
                begins[low] = True
    found = each > 0
    return Rounds(roots[selects[found]], np.cumsum(begins)[found] - 1, each[found])


def _in_order(trace: Trace) -> IntArray:
    """Outermost operators by thread and time."""
    roots, found = calls.outermost(trace), threads(trace)
    return roots[grouped.stable_order(found.code[roots], len(found))]


def _place(trace: Trace, rows: IntArray) -> IntArray:
    """A number for the thread, the step and the span around each row."""
    spans = trace.host & trace.rows("kind", *_AROUND)
    around = nesting.nearest_above(trace.ints("parent"), spans)[rows]
    return grouped.distinct([threads(trace).code[rows], trace.ints("step")[rows], around], len(rows))[0]


def _bodies(trace: Trace, roots: IntArray, selects: IntArray) -> IntArray:
    """A number for the operators from each selection to the next one, whatever their order."""
    names = trace.codes("name")
    token = np.random.default_rng(0).integers(1, 1 << 40, len(names.values) + 1)
    passed = np.append(0, np.cumsum(token[names.codes[roots]]))
    return np.diff(passed[selects], append=0)


def _repeats(place: IntArray, body: IntArray, length: IntArray, period: int) -> BoolArray:
    """True where a selection, the one a round later and the one behind that are in one place, and the same few
    operators follow the first two."""
    here, later, behind = place[: -period - 1], place[period:-1], place[period + 1 :]
    same: BoolArray = (here == later) & (later == behind) & (body[: -period - 1] == body[period:-1])
    return same & (length[: -period - 1] <= _LONGEST // period)


def _runs(same: BoolArray, period: int) -> tuple[IntArray, IntArray]:
    """Start and end of each stretch of selections that repeat, its last round included."""
    edges = np.diff(np.concatenate([[False], same, [False]]).astype(np.int8))
    return np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) + period + 1
