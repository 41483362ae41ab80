"""The times that a throughput benchmark records in the loop, in ns, and its steps as numpy arrays. 24 bytes per step
and 8 per batch read, so a million steps take 32 MB; 8 bytes more per step with a timed device."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

logger = logging.getLogger("perfkit")

UNKNOWN: Final = -1
"""In ``StepLog.samples``: the number of samples was not given."""


class StepLog:
    """Times of one loop on the host's clock. Mutable, written from one thread. ``batch_ns[i]`` is step i, from the end
    of the previous step (or the start) to its own end; ``samples[i]`` its samples; ``reads[i]`` the number of batches
    read by its end. ``read_ns[j]`` is the wait for batch j. ``other_wait_ns`` are waits without a batch (a loader that
    starts its workers or reaches its end), with their step. ``reading`` is set while a reader waits, so that no wait
    counts twice."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.running = False
        self.reading = False
        self.thread: int | None = None
        self.last_ns = 0
        self.batch_ns = array("q")
        self.samples = array("q")
        self.reads = array("q")
        self.read_ns = array("q")
        self.other_wait_ns = array("q")
        self.other_wait_step = array("q")
        self.said: set[str] = set()

    def wait_without_batch(self, dur_ns: int) -> None:
        """Record a wait for input without a batch, in the current step."""
        if self.running:
            self.other_wait_ns.append(dur_ns)
            self.other_wait_step.append(len(self.batch_ns))

    def complain(self, message: str) -> None:
        """Log each message once: a loop repeats the same error a million times."""
        if message not in self.said:
            self.said.add(message)
            logger.warning("perfkit: throughput: %s", message)


IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Steps:
    """One value per step, shape (steps,). ``reader_ns`` is None if no batch was read through a timed reader;
    ``samples`` is -1 if not given."""

    batch_ns: IntArray
    reader_ns: IntArray | None
    samples: IntArray

    def __len__(self) -> int:
        return len(self.batch_ns)

    @property
    def rate_steps(self) -> tuple[IntArray, IntArray]:
        """Return (items, ns) of the steps with known samples; if there are none, all steps with 1 item each."""
        told = self.samples != UNKNOWN
        if not told.any():
            return np.ones_like(self.batch_ns), self.batch_ns
        return self.samples[told], self.batch_ns[told]


def steps_of(log: StepLog, times_ns: array[int], first: int, last: int) -> Steps:
    """Return steps ``first`` to ``last`` (exclusive); ``times_ns`` are the durations of all steps on either clock."""
    first = min(first, last)
    before = log.reads[first - 1] if first else 0
    reads = _copy(log.reads[first:last]) - before
    waited = None
    if reads.any():  # the wait for input in each step, including waits without a batch
        total = np.concatenate([[0], np.cumsum(_copy(log.read_ns[before : before + int(reads[-1])]))])
        waited = np.diff(total[reads], prepend=0)
        steps = _copy(log.other_wait_step) - first
        inside = (steps >= 0) & (steps < last - first)
        np.add.at(waited, steps[inside], _copy(log.other_wait_ns)[inside])
    return Steps(_copy(times_ns[first:last]), waited, _copy(log.samples[first:last]))


def _copy(values: array[int]) -> IntArray:
    """Return a copy: an array whose memory numpy borrows cannot grow."""
    return np.array(values, dtype=np.int64)
