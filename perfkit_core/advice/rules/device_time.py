"""How much of each step does some device work take, and which calls launched nothing else?"""

from __future__ import annotations

import numpy as np

from perfkit_core import intervals
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.rules.phrases import millis, period
from perfkit_core.language import say
from perfkit_core.schema import DEVICE_WORK, KERNEL
from perfkit_core.trace import BoolArray, IntArray, Trace


def covered_ns(facts: Facts, rows: IntArray) -> float:
    """Time of a step in which any of the events takes place (union; ``facts.rank``'s), median over the steps."""
    if not len(facts.steps) or not len(rows):
        return 0.0
    found = intervals.union_of(np.sort(facts.of_rank(rows)), facts.trace.ints("start_ns"), facts.trace.end_ns)
    return float(np.median(facts.within_steps(found)))


def busy_ns(facts: Facts) -> float:
    """Time of a step in which any device works (union; ``facts.rank``'s), median over the steps."""
    return covered_ns(facts, np.flatnonzero(~facts.trace.host & facts.trace.rows("kind", *DEVICE_WORK)))


def kernels(trace: Trace) -> IntArray:
    """Rows of the kernels."""
    return np.flatnonzero(trace.rows("kind", KERNEL) & ~trace.host)


def launched_within(trace: Trace, inside: BoolArray) -> IntArray:
    """Rows of the device work that the chosen host events launched."""
    launched_by = trace.ints("launched_by")
    found: IntArray = np.flatnonzero((launched_by >= 0) & inside[launched_by] & trace.rows("kind", *DEVICE_WORK))
    return found


def with_launches(trace: Trace, rows: IntArray) -> IntArray:
    """Device work, and the calls that launched it and nothing else: what a removal takes away."""
    launched_by = trace.ints("launched_by")
    work = launched_by[np.flatnonzero((launched_by >= 0) & trace.rows("kind", *DEVICE_WORK))]
    mine = launched_by[rows]
    wanted = np.bincount(mine[mine >= 0], minlength=len(trace))
    calls = np.flatnonzero((wanted > 0) & (wanted == np.bincount(work, minlength=len(trace))))
    return np.concatenate([rows, calls])


def of_busy(facts: Facts, busy: float) -> str:
    """What a share of the device's work is of, in words."""
    return say("the {busy} ms that the device works in {period}", busy=millis(busy), period=period(facts))
