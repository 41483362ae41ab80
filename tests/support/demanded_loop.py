"""A training loop that records on demand with a simulated profiler, and a client that asks it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from perfkit_core.api import summarize
from perfkit_core.readers.load import load
from perfkit_core.recording import environment
from perfkit_core.recording.capture import Accepted, CaptureClient, CaptureResult
from perfkit_core.recording.schedule import NativeActions, demanded
from perfkit_core.recording.step_recording import CallbackRecording
from perfkit_core.recording.writer import CycleWriter, DetachedCycle, trace_handler
from tests.support.small_trace import small_trace

Result = TypeVar("Result")
NATIVE = NativeActions("off", "warm up", "record", "last")


def handler(folder: Path) -> CycleWriter[Any]:
    made: CycleWriter[Any] = trace_handler(
        folder, lambda profiler, place: DetachedCycle(small_trace), (), environment.environment_rank, True
    )
    return made


class Loop:
    """A training loop with a profiler that only notes its states."""

    def __init__(self, writer: CycleWriter[Any], planned: Callable[[int], str] | None = None) -> None:
        self.states: list[str] = []
        self.writer = writer
        self.schedule = demanded(writer, planned, NATIVE, 2)

    def step(self) -> None:
        self.states.append(self.schedule(len(self.states)))
        if self.states[-2:-1] == ["last"]:
            self.writer(self)

    def steps(self, *states: str) -> list[int]:
        return [step for step, state in enumerate(self.states) if state in states]


def while_running(action: Callable[[], Result], step: Callable[[], Any]) -> Result:
    """Return what ``action`` returns in another thread. Meanwhile, call ``step`` again and again."""
    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(action)
        while not result.done():
            step()
            time.sleep(0.001)
        return result.result()


def check_windows_follow_a_planned_one(profiler: Any, work: Callable[[], Any], folder: Path, operator: str) -> None:
    """Run a loop with a profiler whose planned window is that of steps 2 and 3, and capture 3 steps, twice. Each step
    is one call of ``operator`` by ``work``. The steps before a window are timed, so the recording knows what a step
    takes without the profiler."""
    with profiler:

        def step() -> None:
            work()
            profiler.step()

        for _ in range(5):
            step()
        for _ in range(2):
            accepted, (recorded,) = while_running(lambda: captured(str(os.getpid()), 3), step)
            assert recorded.path
            window = list(range(accepted.first, accepted.last + 1))
            trace = load(recorded.path)
            assert trace.ints("step")[trace.rows("kind", "step")].tolist() == window
            assert trace.ints("step")[trace.rows("name", operator)].tolist() == window
        assert steps_of(folder)[:2] == [2, 3]
    assert len(steps_of(folder)) == 8


def check_a_signal_records_a_window(profiler: Any, work: Callable[[], Any], folder: Path) -> None:
    """Send SIGUSR2 in step 4 to a loop whose windows have two steps of warm-up."""
    with profiler:
        for number in range(20):
            if number == 4:
                signal.raise_signal(signal.SIGUSR2)
            work()
            profiler.step()
    assert steps_of(folder) == list(range(7, 17))


def check_the_end_within_a_window(recording: CallbackRecording, work: Callable[[], Any], folder: Path) -> None:
    """The training ends within the window, and its process lives on."""
    recording.begin(100)

    def step() -> None:
        work()
        recording.step_ended()

    step()
    with CaptureClient(str(folder)) as request:
        accepted = while_running(lambda: request.ask(999), step)
        while recording.step < accepted.first + 3:
            step()
        end = recording.step
        recording.finish()
        (recorded,) = request.wait(accepted, lambda text: None)
    assert (recorded.done, recorded.steps) == (True, (accepted.first, end - 1))
    assert recorded.error == f"the training ended before step {end} was complete"
    assert steps_of(folder) == list(range(accepted.first, end))


def steps_of(folder: Path) -> list[int]:
    steps: list[int] = summarize(folder, "steps")["step"].tolist()
    return steps


def asked(loop: Loop, target: str, steps: int = 3) -> tuple[Accepted, list[CaptureResult]]:
    """Capture from another thread, while the loop runs."""
    loop.step()
    return while_running(lambda: captured(target, steps), loop.step)


def captured(target: str, steps: int) -> tuple[Accepted, list[CaptureResult]]:
    with CaptureClient(target) as request:
        accepted = request.ask(steps)
        return accepted, request.wait(accepted, lambda text: None)
