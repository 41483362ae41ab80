"""The times that a throughput benchmark records in the loop, in ns, and the steps as numpy arrays. A log takes 24 bytes
per step and 8 bytes per batch. If a device is timed, it takes 8 more bytes per step."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from perfkit_core.base.system import failures

UNKNOWN: Final = -1
"""Value of ``StepLog.samples`` if the number of samples is unknown."""


class StepLog:
    """The times of one loop on the host clock. The log is mutable. Only one thread writes it.

    - ``batch_ns``: for each step, the time from the end of the previous step (or the start of the loop) to its end.
    - ``samples``: for each step, its number of samples.
    - ``reads``: for each step, the number of batches read from the start of the loop to the end of the step.
    - ``read_ns``: for each batch, the wait for it.
    - ``other_wait_ns``: waits that return no batch (for workers that start, or for the end of the loader).
    - ``other_wait_step``: for each of these waits, the index of its step.
    - ``reading``: True while a reader waits, so that nested readers do not count a wait twice."""

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
        self.logged: set[str] = set()

    def wait_without_batch(self, dur_ns: int) -> None:
        """Record a wait that returns no batch, in the current step."""
        if self.running:
            self.other_wait_ns.append(dur_ns)
            self.other_wait_step.append(len(self.batch_ns))

    def complain(self, message: str) -> None:
        """Log a message, but only once, because a loop repeats the same error in every step."""
        if message not in self.logged:
            self.logged.add(message)
            failures.tell(f"throughput: {message}", logging.WARNING)


IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a loop, as arrays of shape (steps,)."""

    batch_ns: IntArray
    reader_ns: IntArray | None  # None if no batch was read through a timed reader.
    samples: IntArray  # The number of samples, -1 if it is unknown.

    def __len__(self) -> int:
        return len(self.batch_ns)

    @property
    def rate_steps(self) -> tuple[IntArray, IntArray]:
        """Two arrays with one item per step: the number of samples and the duration in ns. Steps without a known number
        of samples are left out. If no step has a known number, all steps are included, each as one sample."""
        with_samples = self.samples != UNKNOWN
        if not with_samples.any():
            return np.ones_like(self.batch_ns), self.batch_ns
        return self.samples[with_samples], self.batch_ns[with_samples]


def steps_of(log: StepLog, times_ns: array[int], first: int, last: int) -> Steps:
    """Return the steps from ``first`` up to, but not including, ``last``. ``times_ns`` are the durations of all steps,
    on the host clock or the device clock."""
    first = min(first, last)
    before = log.reads[first - 1] if first else 0
    reads = _copy(log.reads[first:last]) - before
    waited = None
    if reads.any():
        total = np.concatenate([[0], np.cumsum(_copy(log.read_ns[before : before + int(reads[-1])]))])
        waited = np.diff(total[reads], prepend=0)
        steps = _copy(log.other_wait_step) - first
        inside = (steps >= 0) & (steps < last - first)
        np.add.at(waited, steps[inside], _copy(log.other_wait_ns)[inside])
    return Steps(_copy(times_ns[first:last]), waited, _copy(log.samples[first:last]))


def _copy(values: array[int]) -> IntArray:
    """Copy the values, because an ``array`` cannot grow while numpy uses its memory."""
    return np.array(values, dtype=np.int64)
