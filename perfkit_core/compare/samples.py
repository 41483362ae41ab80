"""What are the samples of one side? Its steps, of every capture that it has.

A step of several ranks is one sample that holds a time for each: the steps of ranks that wait for each other are not
independent. Captures (recordings of the same training, each of a process of its own) stay apart: what they differ by
tells how far two equal runs are apart.

Which steps took much longer than the others of their capture? They are named, and stay counted.

Steps as samples: captures, the noise between equal runs, intervals, verdicts, outliers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from perfkit_core.advice.thresholds import Thresholds
from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.algorithms.outliers import outlying
from perfkit_core.model.trace import Trace, concat_traces
from perfkit_core.views.steps.step_rows import step_rows
from perfkit_core.views.tables import rounded_division

GAP_NS = 1_000_000_000
"""Between the captures of a pooled trace, so that nothing of them overlaps."""


@dataclass(frozen=True, slots=True)
class Capture:
    """The steps of one recording in the order of time: their numbers, shape (steps,), and ns, shape (steps,), or
    (steps, ranks) where each rank has each of them."""

    source: str
    step: IntArray
    step_ns: IntArray

    @property
    def of_ranks(self) -> bool:
        """Whether a step has a time for each of several ranks."""
        return self.step_ns.ndim > 1

    @property
    def mean_ns(self) -> IntArray:
        """One time a step: the mean of its ranks, to the nearest ns. Shape (steps,)."""
        if not self.of_ranks:
            return self.step_ns
        return rounded_division(self.step_ns.sum(axis=1), self.step_ns.shape[1])


def capture(trace: Trace) -> Capture:
    """The samples of one trace. Where ranks have recorded other steps, each step of each rank is a sample."""
    rows = step_rows(trace)
    rows = rows[np.argsort(trace.ints("start_ns")[rows], kind="stable")]
    number, duration = trace.ints("step")[rows], trace.ints("dur_ns")[rows]
    numbers, first, group, times = np.unique(number, return_index=True, return_inverse=True, return_counts=True)
    ranks, rank = np.unique(trace.ints("rank")[rows], return_inverse=True)
    cells = np.unique(group * len(ranks) + rank)
    if len(ranks) < 2 or (times != len(ranks)).any() or len(cells) < len(rows):
        return Capture(trace.meta.source, number, duration)
    table = np.empty((len(numbers), len(ranks)), np.int64)
    table[group, rank] = duration
    order = np.argsort(first, kind="stable")
    return Capture(trace.meta.source, numbers[order], table[order])


def pooled(traces: Sequence[Trace]) -> Trace:
    """Captures of the same training as one trace: one after the other on its clock, with steps numbered on.

    Raises ValueError without traces.
    """
    if not traces:
        raise ValueError("no captures")
    if len(traces) == 1:
        return traces[0]
    shifted, at, number = [], 0, 0
    for trace in traces:
        moved, at, number = _moved(trace, at, number)
        shifted.append(moved)
    return concat_traces(shifted)


def _moved(trace: Trace, at: int, number: int) -> tuple[Trace, int, int]:
    """The trace from ``at`` on with steps from ``number`` on, and where the next one begins."""
    start, end, step = trace.ints("start_ns"), trace.end_ns, trace.ints("step")
    if not len(trace):
        return trace, at, number
    shift = at - int(start.min())
    numbered = step[step >= 0]
    lowest = int(numbered.min()) if len(numbered) else 0
    moved = trace.with_ints(start_ns=start + shift, step=np.where(step >= 0, step - lowest + number, -1))
    window = trace.meta.window_ns
    after = int(end.max()) + shift
    meta = {"window_ns": (window[0] + shift, window[1] + shift) if window else None, "clock": "relative"}
    last = int(numbered.max()) - lowest + 1 if len(numbered) else 0
    return moved.with_meta(**meta), after + GAP_NS, number + last


def outliers(sides: Mapping[str, Sequence[Capture]]) -> pd.DataFrame:
    """Columns run (the side), capture (its number, from 1 on), step, dur_ns, median_ns (of the capture), longer_ratio;
    in the order of the captures."""
    rows = [
        row for side, captures in sides.items() for at, one in enumerate(captures, 1) for row in _rows(side, at, one)
    ]
    return pd.DataFrame(rows, columns=["run", "capture", "step", "dur_ns", "median_ns", "longer_ratio"])


def _rows(side: str, number: int, one: Capture) -> list[tuple[object, ...]]:
    times, found = one.mean_ns, late(one)
    pairs = zip(one.step[found].tolist(), times[found].tolist(), strict=True)
    median = int(np.median(times)) if len(times) else 0
    return [(side, number, step, ns, median, ns / median - 1) for step, ns in pairs]


def late(one: Capture) -> BoolArray:
    """Which steps of a capture took much longer than its others, shape (steps,), by the limits of the advice on
    outlying steps."""
    limits = Thresholds()
    return outlying(one.mean_ns, limits.outlier_sigmas, limits.outlier_share)
