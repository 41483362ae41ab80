"""What a rank does at which time: sets of intervals of computation, communication, copies, loading and host work.

With device work in the recording, kernels compute and the host launches them. Without, operators compute: time inside
an operator (not that of loading data) on any thread, less the communication inside it. Loading is what the threads that
run the steps spend in the data loader. Host work is any recorded host event but a step: operators, calls of the device
runtime, Python frames, labelled ranges, overhead of the profiler.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit_core import intervals
from perfkit_core.analyses.communication.collectives import communication
from perfkit_core.analyses.once import once
from perfkit_core.analyses.threads import threads
from perfkit_core.intervals import Intervals
from perfkit_core.schema import (
    DATALOADER,
    DEVICE_WORK,
    KERNEL,
    MEMCPY,
    MEMSET,
    NESTED_KINDS,
    OPERATOR,
    OVERHEAD,
    STEP,
)
from perfkit_core.trace import BoolArray, IntArray, Trace


@dataclass(frozen=True, slots=True)
class Activity:
    """Disjoint sets, each a union over the threads or the devices of one rank."""

    compute: Intervals
    communication: Intervals
    copy: Intervals
    loading: Intervals
    host: Intervals


@dataclass(frozen=True, slots=True)
class Activities:
    """Masks of shape (rows,) of what the events are; :meth:`of` unites those of one rank."""

    trace: Trace
    compute: BoolArray
    communication: BoolArray
    copy: BoolArray
    loading: BoolArray
    host: BoolArray
    on_device: bool

    def of(self, rank: int, chosen: BoolArray | None = None) -> Activity:
        """The sets of the chosen events (None: all) of a rank, as in the column (-1: unknown)."""
        mine = self.trace.ints("rank") == rank
        if chosen is not None:
            mine &= chosen
        others = (self.communication, self.copy, self.loading, self.host)
        return Activity(self._compute(mine), *(_union(self.trace, mine & mask) for mask in others))

    def _compute(self, mine: BoolArray) -> Intervals:
        if self.on_device:
            return _union(self.trace, mine & self.compute)
        return _less_inner(self.trace, mine & self.compute, mine & self.communication)


@once
def activities(trace: Trace) -> Activities:
    """What each event of the trace is."""
    talk = communication(trace)
    on_device = has_device_work(trace)
    kernels = trace.rows("kind", KERNEL) & ~talk.device
    operators = trace.host & trace.rows("kind", OPERATOR) & ~talk.calls & ~trace.rows("phase", DATALOADER)
    return Activities(
        trace,
        compute=kernels if on_device else operators,
        communication=talk.device | talk.host,
        copy=trace.rows("kind", MEMCPY, MEMSET),
        loading=trace.host & trace.rows("kind", DATALOADER) & step_threads(trace),
        host=trace.host & trace.rows("kind", *(NESTED_KINDS - {STEP}), OVERHEAD),
        on_device=on_device,
    )


def has_device_work(trace: Trace) -> bool:
    """Whether anything ran on a device: else the operators themselves are the computation."""
    return bool(trace.rows("kind", *DEVICE_WORK).any())


@once
def step_threads(trace: Trace) -> BoolArray:
    """True for events of the threads that run the steps (one a rank, as a rule), shape (rows,)."""
    found = threads(trace)
    runs = np.zeros(len(found), np.bool_)
    runs[found.code[trace.host & trace.rows("kind", STEP)]] = True
    mask: BoolArray = runs[found.code]
    return mask


def _union(trace: Trace, mask: BoolArray) -> Intervals:
    return intervals.union(trace.ints("start_ns")[mask], trace.end_ns[mask])


def _less_inner(trace: Trace, outer: BoolArray, inner: BoolArray) -> Intervals:
    """Union of ``outer``, on each thread less the ``inner`` events of that thread."""
    key = _threads(trace)
    mixed = np.isin(key, np.unique(key[inner]))
    parts = [_union(trace, outer & ~mixed)]
    for thread in np.unique(key[outer & mixed]):
        here = key == thread
        parts.append(intervals.subtract(_union(trace, outer & here), _union(trace, inner & here)))
    return intervals.union(np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts]))


@once
def _threads(trace: Trace) -> IntArray:
    _, pid = np.unique(trace.ints("pid"), return_inverse=True)
    _, tid = np.unique(trace.ints("tid"), return_inverse=True)
    return pid.astype(np.int64) * (int(tid.max(initial=0)) + 1) + tid
