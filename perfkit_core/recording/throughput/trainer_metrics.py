"""The throughput of a training whose loop belongs to a trainer, for callbacks that log it as metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from perfkit_core.base.system import failures
from perfkit_core.recording.throughput.loop import Throughput


class TrainerMetrics:
    """Times the steps between ``begin`` and ``end``, and logs averages. The methods never raise."""

    def __init__(self, new: Callable[..., Throughput]) -> None:
        self._throughput = new(warmup=0)
        self._training = self._running = self._failed = False
        self._steps = 0

    def begin(self) -> None:
        self._training = True
        self.resume()

    def end(self, wait: bool = True) -> None:
        """End the training. If ``wait`` is set, wait until the device has finished the last step."""
        self.pause(wait)
        self._training = False

    def resume(self) -> None:
        """Go on after ``pause``. Do nothing outside a training, for example after a validation of its own."""
        if self._training and not self._running:
            self._running = True
            self._guarded(self._throughput.start)

    def pause(self, wait: bool = True) -> None:
        """Leave out what follows, such as a validation."""
        if self._running:
            self._running = False
            self._guarded(lambda: self._throughput.stop(wait))

    def step(self, samples: Callable[[], int | None]) -> None:
        """End a step with this number of samples."""
        if self._running:
            self._steps += 1
            self._guarded(lambda: self._throughput.step(self._guarded(samples)))

    def log(self, log: Callable[[dict[str, float]], Any], every: int = 1) -> None:
        """Call ``log`` with the averages since the last call, after every ``every`` steps."""
        if self._running and every and self._steps % every == 0:  # a trainer that never logs has 0
            self._guarded(lambda: self._log(log))

    def _log(self, log: Callable[[dict[str, float]], Any]) -> None:
        metrics = self._throughput.metrics()
        if metrics:
            log(metrics)

    def _guarded(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except Exception as error:
            if failures.raised_by_signal(error):
                raise
            if not self._failed:  # each step would repeat it
                self._failed = True
                failures.log("the throughput could not be logged, training continues", error)
            return None


def samples_in(batch: Any) -> int | None:
    """Return the length of the first tensor or array in a batch, or None if there is none."""
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (list, tuple)) else ()
    return next((length for length in map(samples_in, parts) if length is not None), None)
