"""A training loop that records on demand with a simulated profiler, and a client that asks it."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from perfkit_core.api import summarize
from perfkit_core.recording import environment
from perfkit_core.recording.capture import Accepted, CaptureClient, CaptureResult
from perfkit_core.recording.schedule import NativeActions, demanded
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
