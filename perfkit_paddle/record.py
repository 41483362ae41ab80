"""Recording of unmodified Paddle scripts and of selected training steps, and the demo training."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from perfkit_core.errors import CaptureError
from perfkit_core.recording import callbacks, environment, signals, writer
from perfkit_core.recording.step_recording import Ending, asked
from perfkit_core.system import failures
from perfkit_paddle import findings, framework
from perfkit_paddle.on_trace_ready import place, take, trace_handler

_OPTIONS: Final = {"shapes": "record_shapes", "memory": "profile_memory"}
"""Options of Paddle's profiler. Its ``with_flops`` records nothing; stacks of static programs are always recorded."""


class ScriptRecording:
    """A Paddle profiler around an unmodified script, with a step after each update of its first optimizer. Raises
    CaptureError if Paddle or its profiler cannot run, UsageError for options that Paddle cannot record."""

    def __init__(self, run_dir: Path, steps: int | None, options: Mapping[str, Any]) -> None:
        wanted = asked(options, _OPTIONS, "paddle")
        self._writer: writer.CycleWriter[Any] = writer.CycleWriter(run_dir, _take_iterations, place=place)
        profiling = framework.profiler()
        state = profiling.ProfilerState

        def schedule(step: int) -> Any:  # Paddle's own scheduler warns about a missing warm-up
            if steps is None or step < steps:
                return state.RECORD
            return state.RECORD_AND_RETURN if step == steps else state.CLOSED

        self._profiler = profiling.Profiler(
            scheduler=None if steps is None else schedule, on_trace_ready=self._writer, **wanted
        )
        try:
            self._profiler.start()
        except AttributeError:
            text = "paddle.profiler cannot start: another Profiler exists in this process"
            raise CaptureError(
                text, "record a script that does not profile itself, or use perfkit_paddle.trace_handler"
            ) from None
        self._left = None if steps is None else steps + 1  # the first update only opens step 1
        self._running = True
        self._other = signals.GivingWay(type(self._profiler), "__init__", self._stop)
        self._updates = framework.Updates(self._updated)

    def finish(self) -> int:
        """Stop and restore the optimizers; return the number of files written. Raises CaptureError if recording ended
        because the script started a profiler of its own."""
        self._stop()
        self._updates.end()
        written = len(self._writer.written)
        self._other.check()
        return written

    def _stop(self) -> None:
        if not self._running:
            return
        self._running = False
        self._other.over()
        try:
            self._profiler.stop()
        except Exception as error:
            failures.log("Paddle's profiler could not be stopped, what was written stays", error)
        self._profiler.profiler = None  # Paddle creates no other profiler while this is set

    def _updated(self) -> None:
        if not self._running:
            return
        try:
            self._profiler.step()
        except Exception as error:
            failures.log("Paddle's profiler failed at a step, recording ends, training continues", error)
            self._running = False
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                self._stop()


def _take_iterations(profiler: Any, place: environment.Place) -> writer.Taken:
    """Take the cycle without the steps before the first and after the last update, which are not iterations."""
    return take(profiler, place, no_steps=frozenset({0, int(profiler.step_num)}))


class PaddleRecording(callbacks.CallbackRecording):
    """The recording of callbacks: arguments as in :class:`perfkit_core.recording.callbacks.CallbackRecording`,
    ``options`` go to paddle.profiler.Profiler."""

    def profiler_class(self) -> Callable[..., Any]:
        profiler: Callable[..., Any] = framework.profiler().Profiler
        return profiler

    def step_profiler(self) -> PaddleStepProfiler:
        return PaddleStepProfiler(self)


class PaddleStepProfiler:
    """The profiler of one training, see :class:`perfkit_core.recording.step_recording.StepProfiler`. Each cycle has its
    own Profiler, whose scheduler returns the last requested state and whose step number is set before each step. The
    previous one must be freed by then: Paddle allows one per process."""

    def __init__(self, recording: PaddleRecording) -> None:
        self.writer: writer.CycleWriter[Any] = writer.CycleWriter(recording.run_dir, self._take, recording.also, place)
        self._options = recording.options
        self._profiler: Any = None
        self._state: Any = None
        self._cut_off: frozenset[int] = frozenset()
        self._ending = Ending.ENDED
        self._keep = False

    def warm_up(self, step: int) -> None:
        """Enter Paddle's state READY."""
        self._begin(framework.profiler().ProfilerState.READY, step)

    def start(self, step: int) -> None:
        recording = framework.profiler().ProfilerState.RECORD
        if self._profiler is None:
            self._begin(recording, step)
        else:
            self._state = recording
            self.next(step)

    def next(self, step: int) -> None:
        self._profiler.step_num = step - 1
        self._profiler.step()

    def stop(self, ending: Ending) -> None:
        running = self._profiler.step_num
        self._ending = ending
        self._cut_off = frozenset() if ending is Ending.ENDED else frozenset({running})
        self._profiler.step_num = running + 1  # no step is running when the result is read
        self._keep = True
        self._stop()

    def cancel(self) -> None:
        """Stop. Paddle's warning on leaving its warm-up without recording is expected."""
        self._keep = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            self._stop()

    def _begin(self, state: Any, step: int) -> None:
        self._state = state

        def ready(profiler: Any) -> None:
            if self._keep:
                self.writer(profiler)

        profiler = framework.profiler().Profiler(scheduler=lambda _: self._state, on_trace_ready=ready, **self._options)
        if profiler.profiler is None:
            raise CaptureError("another Profiler exists in this process, and Paddle allows one", "use one of them")
        profiler.step_num = step
        profiler.start()
        self._profiler = profiler

    def _stop(self) -> None:
        profiler, self._profiler = self._profiler, None
        profiler.stop()

    def _take(self, profiler: Any, place: environment.Place) -> writer.Taken:
        broken_off = self._cut_off if self._ending is Ending.BROKEN_OFF else ()
        partial = tuple(map(findings.partial_step, broken_off))
        return take(profiler, place, no_steps=self._cut_off).then(lambda trace: trace.with_findings(*partial))


WARMUP: Final = 2
RECORDED: Final = 8
BATCH: Final = 64
SAMPLES: Final = 1024


def demo(run_dir: Path, report: Callable[[str], None]) -> None:
    """Train a small conv net on synthetic data for ten steps, record the last eight into ``run_dir``. ``perfkit_torch``
    has the same model, data and schedule. Raises CaptureError if Paddle cannot run."""
    paddle: Any = framework.paddle()
    profiling = framework.profiler()
    paddle.seed(0)
    nn = paddle.nn
    model = nn.Sequential(
        nn.Conv2D(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2D(2),
        nn.Conv2D(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2D(2),
        nn.Flatten(), nn.Linear(16 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    random = np.random.RandomState(0)
    images = random.rand(SAMPLES, 1, 28, 28).astype(np.float32)
    labels = random.randint(0, 10, SAMPLES).astype(np.int64)

    class Images(paddle.io.Dataset):  # type: ignore[misc]
        def __getitem__(self, index: int) -> Any:
            return images[index], labels[index]

        def __len__(self) -> int:
            return SAMPLES

    loader = paddle.io.DataLoader(Images(), batch_size=BATCH, shuffle=False, num_workers=0)
    loss_of = nn.CrossEntropyLoss()
    optimizer = paddle.optimizer.Adam(1e-3, parameters=model.parameters())
    report(f"training {WARMUP + RECORDED} steps of batch {BATCH} with PaddlePaddle {paddle.__version__}")
    schedule = profiling.make_scheduler(closed=0, ready=WARMUP, record=RECORDED, repeat=1)
    profiler = profiling.Profiler(scheduler=schedule, on_trace_ready=trace_handler(run_dir), profile_memory=True)
    try:
        profiler.start()
    except AttributeError:
        raise CaptureError("paddle.profiler cannot start: another Profiler exists in this process") from None
    for step, (batch, targets) in enumerate(loader):
        if step == WARMUP + RECORDED:
            break
        loss_of(model(batch), targets).backward()
        optimizer.step()
        optimizer.clear_grad()
        profiler.step()
    profiler.stop()
    report(f"recorded {RECORDED} steps into {run_dir}")
