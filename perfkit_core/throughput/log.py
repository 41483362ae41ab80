"""What a throughput benchmark writes down while the loop runs: whole nanoseconds in plain arrays.

24 bytes a step and 8 bytes a batch read, so a million steps take 32 MB; 8 bytes a step more where a device is timed.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable
from typing import Final

logger = logging.getLogger("perfkit")

UNKNOWN: Final = -1
"""In ``StepLog.samples``: the step did not say how many samples it had."""


class StepLog:
    """Times of one loop, on the host's clock. Mutable, written from one thread.

    ``batch_ns[i]`` is step i, from the end of the step before (or from start) to its own end; ``samples[i]`` its
    samples; ``reads[i]`` how many batches had been read when it ended. ``read_ns[j]`` is the wait for batch j.
    ``other_wait_ns`` are waits that brought no batch (a loader starting its workers, or finding its end), with the
    step they fell in. ``reading`` is set while a reader waits, so that nobody counts the same wait twice.
    """

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
        """A wait for input that brought no batch, in the step that is going on."""
        if self.running:
            self.other_wait_ns.append(dur_ns)
            self.other_wait_step.append(len(self.batch_ns))

    def complain(self, message: str) -> None:
        """Log a problem, once for each message: a loop makes the same mistake a million times."""
        if message not in self.said:
            self.said.add(message)
            logger.warning("perfkit: throughput: %s", message)
