"""The account of causes (:mod:`perfkit_core.causes.account`) of windows of time, piece by piece.

A comparison attributes the difference between the median steps. A median cannot be divided into parts, but a mean can.
So the parts are means over the *middle steps*: the half of the steps (rounded up, at least two) that is nearest to the
median. The difference between this mean and the median is an additional part.

All devices of a rank count as one: they wait for the host only while none of them works. The categories are the words
of the account. Data loading, which is a kind of host work, has a category of its own, and so has host work without a
device, for which nothing waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.base.language.messages import mark
from perfkit_core.base.system import machine
from perfkit_core.causes.account import device_segments, host_segments
from perfkit_core.causes.host_work import HOST_WORK, UNRECORDED, host_work
from perfkit_core.causes.host_work import INPUT as LOADS
from perfkit_core.causes.largest import NO_OPERATOR, STATES
from perfkit_core.causes.segments import COMMUNICATION, COMPUTE, COPY, HOST, WORDS, in_windows
from perfkit_core.compare.align.operator_owner import Owners
from perfkit_core.compare.windows import Windows
from perfkit_core.trace.model.schema import BACKWARD, DATALOADER, FORWARD, OPTIMIZER
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.communication.instances import communication
from perfkit_core.views.steps.activity import activities, has_device_work

INPUT: Final = "input"
CATEGORIES: Final = (*WORDS, INPUT, NO_OPERATOR)
PHRASES: Final[Mapping[str, str]] = {**dict(STATES), INPUT: mark("waiting for data")}
"""Category → how texts show it."""
BUSY: Final = (COMPUTE, COMMUNICATION, COPY)
"""The categories in which a device works."""
HELD: Final = (HOST, NO_OPERATOR)
"""The categories in which the host does something, while devices wait for it, or else while no operator runs."""
_EVENT_BYTES: Final = 200
"""Memory of the pieces for each event, including that of their creation."""


def shared_out(total_ns: Iterable[int], count: int) -> IntArray:
    """Divide each total by ``count``, the number of windows. The results are integers. Their sum is
    ``sum(total_ns) / count``, rounded once. Each differs from its exact value by less than 1 ns."""
    passed = np.cumsum(np.array([0, *total_ns], np.int64))
    marks: IntArray = (2 * passed + count) // (2 * max(count, 1))
    return np.diff(marks)


@dataclass(frozen=True, slots=True)
class Pieces:
    """The pieces that fill all windows, without overlap. The arrays have the shape (pieces,)."""

    category: IntArray  # index of CATEGORIES
    kind: IntArray  # index of HOST_WORK, what the host does; -1 while something else is accounted for
    row: IntArray  # the event of the account (see :class:`~perfkit_core.causes.segments.Segments`), -1 if none
    owner: IntArray  # the operator that the event belongs to, -1 if none
    phase: IntArray  # index of the phases of the trace, or their number if the phase is unknown
    dur_ns: IntArray
    operators: Owners  # those of the run

    def names(self) -> np.ndarray:
        return np.array(CATEGORIES, object)[self.category]


def pieces(trace: Trace, windows: Windows, operators: Owners) -> Pieces:
    """Cut the windows at the edges of the account. Raises UsageError if the pieces exceed the limit of memory."""
    machine.require(_EVENT_BYTES * len(trace), "the time of each event")
    parts, on_device = [(np.empty(0, np.int64),) * 4], has_device_work(trace)
    for rank in np.unique(windows.rank).tolist():
        at = np.flatnonzero(windows.rank == rank)
        segments = device_segments(trace, rank, None) if on_device else host_segments(trace, rank)
        window, segment, word, width = in_windows(segments, windows.start_ns[at], windows.end_ns[at])
        parts.append((at[window], np.append(segments.event, NO_ROW)[segment], word, width))
    window, row, word, dur_ns = (np.concatenate(cells) for cells in zip(*parts, strict=True))
    return _described(trace, operators, row, word, dur_ns, window)


def without_time(trace: Trace, operators: Owners, rows: IntArray) -> Pieces:
    """Return pieces of no duration for events of which no time counts."""
    acts = activities(trace)
    computes = trace.host & trace.rows("kind", "operator") if not acts.on_device else acts.compute & ~trace.host
    words = np.full(len(trace), WORDS.index(HOST))
    for word, mask in ((COPY, acts.copy), (COMPUTE, computes), (COMMUNICATION, communication(trace).device)):
        words[mask] = WORDS.index(word)
    return _described(trace, operators, rows, words[rows], np.zeros(len(rows), np.int64), np.arange(len(rows)))


def _described(
    trace: Trace, operators: Owners, row: IntArray, word: IntArray, dur_ns: IntArray, window: IntArray
) -> Pieces:
    held = word == WORDS.index(HOST)
    work = np.append(host_work(trace).astype(np.int64), HOST_WORK.index(UNRECORDED))[row]
    is_step = np.append(trace.rows("kind", "step"), False)[row]
    kind = np.where(held, np.where(is_step, HOST_WORK.index(UNRECORDED), work), NO_ROW)
    waits = CATEGORIES.index(HOST if has_device_work(trace) else NO_OPERATOR)
    of_host = np.where(kind == HOST_WORK.index(LOADS), CATEGORIES.index(INPUT), waits)
    owner = np.append(operators.row, NO_ROW)[row]
    phase = _phases(trace, row, owner, held, window)
    return Pieces(np.where(held, of_host, word), kind, row, owner, phase, dur_ns, operators)


def _phases(trace: Trace, row: IntArray, owner: IntArray, held: BoolArray, window: IntArray) -> IntArray:
    """Return the phase of each piece: that of the operator, or else of the event. Host time without a phase has that of
    the host work before and after it in its window, if both are equal. For example, Python code between two forward
    operators is forward."""
    phase = trace.codes("phase")
    holder = np.where(owner == NO_ROW, row, owner)
    code = np.append(phase.codes, -1)[holder].astype(np.int64)
    labelled = held & np.append(phase.rows(DATALOADER, FORWARD, BACKWARD, OPTIMIZER), False)[holder]
    before, after = _last(labelled, window), _last(labelled[::-1], window[::-1])[::-1]
    after = np.where(after >= 0, len(code) - 1 - after, -1)
    between = held & ~labelled & (owner == NO_ROW) & (before >= 0) & (after >= 0)
    between &= code[before] == code[after] if len(code) else between
    code = np.where(between, np.append(code, -1)[before], code)
    return np.where(code < 0, len(phase.values), code)


def _last(mask: BoolArray, window: IntArray) -> IntArray:
    """Search backwards from each piece to the start of its window. Return the index of the nearest piece whose ``mask``
    is true, or -1 if there is none."""
    index = np.maximum.accumulate(np.where(mask, np.arange(len(mask)), -1))
    return np.where((index >= 0) & (window[index] == window), index, -1) if len(mask) else index
