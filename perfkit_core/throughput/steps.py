"""A stretch of a loop's steps as numpy arrays: the numbers that every output is made from."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfkit_core.throughput.log import UNKNOWN, StepLog

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Steps:
    """One value a step, shape (steps,). ``reader_ns`` is None where no batch was read through a timed reader.

    ``samples`` is -1 where the step did not tell.
    """

    batch_ns: IntArray
    reader_ns: IntArray | None
    samples: IntArray

    def __len__(self) -> int:
        return len(self.batch_ns)

    @property
    def rate_steps(self) -> tuple[IntArray, IntArray]:
        """(items, ns) of the steps that a rate is made from: those that told their samples; if none did, all as 1."""
        told = self.samples != UNKNOWN
        if not told.any():
            return np.ones_like(self.batch_ns), self.batch_ns
        return self.samples[told], self.batch_ns[told]


def steps_of(log: StepLog, times_ns: array[int], first: int, last: int) -> Steps:
    """Steps ``first`` to ``last`` (exclusive); ``times_ns`` are all steps' durations, on the host or a device."""
    first = min(first, last)
    return Steps(_copy(times_ns[first:last]), _reader_ns(log, first, last), _copy(log.samples[first:last]))


def _reader_ns(log: StepLog, first: int, last: int) -> IntArray | None:
    """Wait for input in each step, waits that brought no batch included."""
    before = log.reads[first - 1] if first else 0
    reads = _copy(log.reads[first:last]) - before
    if not reads.any():
        return None
    total = np.concatenate([[0], np.cumsum(_copy(log.read_ns[before : before + int(reads[-1])]))])
    waited = np.diff(total[reads], prepend=0)
    steps = _copy(log.other_wait_step) - first
    inside = (steps >= 0) & (steps < last - first)
    np.add.at(waited, steps[inside], _copy(log.other_wait_ns)[inside])
    return waited


def _copy(values: array[int]) -> IntArray:
    """A copy: an array whose memory numpy borrows cannot grow."""
    return np.array(values, dtype=np.int64)
