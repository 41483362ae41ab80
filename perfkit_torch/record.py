"""Recording of unmodified torch scripts and of selected training steps, and the demo training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from perfkit_core.assembly.steps import EMPTY, PARTIAL
from perfkit_core.errors import CaptureError
from perfkit_core.model.trace import Trace
from perfkit_core.recording import callbacks, environment, signals, writer
from perfkit_core.recording.step_recording import Ending, asked
from perfkit_core.system import failures
from perfkit_torch import framework
from perfkit_torch.on_trace_ready import place, take, trace_handler

_OPTIONS: Final = {
    "shapes": "record_shapes", "memory": "profile_memory", "stacks": "with_stack", "flops": "with_flops"
}  # fmt: skip


class ScriptRecording:
    """A running profiler around an unmodified script. A step ends when the first optimizer's ``step()`` returns. Events
    before the first such end (imports, set-up, the first iteration) and after the last belong to no step. Raises
    CaptureError without torch, UsageError for options that torch cannot record."""

    def __init__(self, run_dir: Path, steps: int | None, options: Mapping[str, Any]) -> None:
        torch = framework.torch()
        self._handler: writer.CycleWriter[Any] = writer.CycleWriter(run_dir, take, place=place)
        self._profiler = torch.profiler.profile(on_trace_ready=self._handler, **asked(options, _OPTIONS, "torch"))
        self._label = torch.profiler.record_function
        self._open: Any = None
        self._wanted = steps
        self._ended = -1  # the first update only opens step 0
        self._running = True
        self._updates = framework.Updates(after=self._after_update, before=self._before_update)
        self._profiler.start()
        autograd = torch.autograd.profiler.profile  # every torch profiler starts this one
        self._other = signals.GivingWay(autograd, "_prepare_trace", self._stop_safely)

    def _before_update(self) -> None:
        """Stop only before the update after the last recorded step: stopping within a step would add to its time."""
        if self._wanted is not None and self._ended >= self._wanted:
            self._stop_safely()

    def _after_update(self) -> None:
        if not self._running:
            return
        try:
            self._ended += 1
            if self._open is not None:
                self._open.__exit__(None, None, None)
                self._open = None
            if self._wanted is None or self._ended < self._wanted:
                self._open = self._label(f"ProfilerStep#{self._ended}")
                self._open.__enter__()
        except Exception as error:
            _failed(error)

    def _stop_safely(self) -> None:
        try:
            self._stop()
        except Exception as error:
            _failed(error)

    def _stop(self) -> None:
        if self._running:
            self._running = False
            self._other.over()
            self._profiler.stop()
            self._updates.end()

    def finish(self) -> int:
        """End the recording if it still runs; return the number of files written. Raises CaptureError if the script
        started a profiler of its own."""
        self._stop()
        written = len(self._handler.written)
        self._other.check()
        return written


def _failed(error: Exception) -> None:
    failures.log("recording failed, the script continues", error)


class TorchRecording(callbacks.CallbackRecording):
    """The recording of callbacks: arguments as in :class:`perfkit_core.recording.callbacks.CallbackRecording`,
    ``options`` go to torch.profiler.profile."""

    def profiler_class(self) -> Callable[..., Any]:
        profile: Callable[..., Any] = framework.torch().profiler.profile
        return profile

    def step_profiler(self) -> TorchStepProfiler:
        return TorchStepProfiler(self)


class TorchStepProfiler:
    """The profiler of one training, see :class:`perfkit_core.recording.step_recording.StepProfiler`. torch counts the
    steps of its own schedule from 0. Trainings that resume or validate need other numbers, so the profiler's phases are
    called directly and the step labels are made here."""

    def __init__(self, recording: TorchRecording) -> None:
        self.writer: writer.CycleWriter[Any] = writer.CycleWriter(recording.run_dir, self._take, recording.also, place)
        self._torch = framework.torch()
        self._options = recording.options
        self._profiler: Any = None
        self._recording = False
        self._label: Any = None
        self._ending = Ending.ENDED

    def warm_up(self, step: int) -> None:
        """Start the device's tracing, which is slow the first time. Raises CaptureError if torch profiles already."""
        if self._torch.autograd._profiler_enabled():
            raise CaptureError("another torch profiler is running, and a second would end it", "use one of them")
        self._profiler = self._torch.profiler.profile(**self._options)
        self._profiler.prepare_trace()

    def start(self, step: int) -> None:
        if self._profiler is None:
            self.warm_up(step)
        self._profiler.start_trace()
        self._recording = True
        self._open(step)

    def next(self, step: int) -> None:
        self._close()
        self._open(step)

    def stop(self, ending: Ending) -> None:
        """Write the cycle. A label that is still open when torch stops is a partial step."""
        if ending is Ending.ENDED:
            self._close()
        self._ending = ending
        self.writer(self._stop())

    def cancel(self) -> None:
        """Stop: torch cannot leave its warm-up without recording."""
        if not self._recording:
            self._profiler.start_trace()
        self._stop()

    def _stop(self) -> Any:
        profiler, self._profiler, self._recording = self._profiler, None, False
        profiler.stop_trace()
        self._close()
        return profiler

    def _take(self, profiler: Any, place: environment.Place) -> writer.Taken:
        """Take the cycle without the warning on a partial step if that step does not run, or runs later."""
        taken = take(profiler, place)
        if self._ending is Ending.BROKEN_OFF:
            return taken

        def without_cut_off(trace: Trace) -> Trace:
            return replace(trace, quality=tuple(f for f in trace.quality if f.code not in (PARTIAL, EMPTY)))

        return taken.then(without_cut_off)

    def _open(self, step: int) -> None:
        self._label = self._torch.profiler.record_function(f"ProfilerStep#{step}")
        self._label.__enter__()

    def _close(self) -> None:
        if self._label is not None:
            self._label.__exit__(None, None, None)
            self._label = None


WARMUP: Final = 2
RECORDED: Final = 8
BATCH: Final = 64
SAMPLES: Final = 1024


def demo(run_dir: Path, report: Callable[[str], None]) -> None:
    """Train a small conv net for a few steps under torch.profiler; ``perfkit_paddle`` has the same demo."""
    torch = framework.torch()
    report(f"torch {torch.__version__}: training the demo model")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    nn = torch.nn
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, 10),
    ).to(device)  # fmt: skip
    random = np.random.RandomState(0)
    pictures = torch.from_numpy(random.rand(SAMPLES, 1, 28, 28).astype("float32"))
    labels = torch.from_numpy(random.randint(0, 10, SAMPLES).astype("int64"))
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(pictures, labels), batch_size=BATCH)
    loss_of, optimizer = nn.CrossEntropyLoss(), torch.optim.Adam(net.parameters(), lr=1e-3)
    schedule = torch.profiler.schedule(wait=WARMUP - 1, warmup=1, active=RECORDED, repeat=1)
    with torch.profiler.profile(
        schedule=schedule, on_trace_ready=trace_handler(run_dir), record_shapes=True, profile_memory=True
    ) as profiler:
        for batch, targets in data:
            loss = loss_of(net(batch.to(device)), targets.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profiler.step()
            if profiler.step_num == WARMUP + RECORDED:
                break
