"""perfkit's schedules: the states of the framework's schedule, the times of all steps, and samples of Python frames."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.advice.engine import advise
from perfkit_core.advice.frames import frames
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from tests.support.frameworks import Framework


def timed(native: Framework, **cycle: int) -> Any:
    """Return perfkit's schedule."""
    return native.schedule(on_demand=None, **cycle)


@pytest.mark.parametrize(
    "cycle",
    [{"wait": 1, "warmup": 1, "active": 2}, {"wait": 0, "warmup": 2, "active": 1, "repeat": 2, "skip_first": 3}],
)
def test_the_states_are_those_of_the_framework(native: Framework, cycle: dict[str, int]) -> None:
    ours, theirs = timed(native, **cycle), native.schedule(**cycle)
    assert [ours(step) for step in range(20)] == [theirs(step) for step in range(20)]
    ours.clock.cycle_taken()  # ends the sampling of frames


def pause() -> None:
    time.sleep(0.02)


PAUSE = f"{__file__}:{pause.__code__.co_firstlineno + 1} (pause)"


@pytest.fixture(scope="module", params=["plain", "stacks"])
def recorded(native: Framework, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Record steps 4 to 7 of 20. A step waits 20 ms. The recording is written before step 10 begins."""
    folder = tmp_path_factory.mktemp("timed")
    if request.param == "stacks" and native.name == "paddle":
        pytest.skip("Paddle records no stacks")
    handler, values = native.trace_handler(folder), native.ones(64, 64)
    options = {"with_stack": True} if request.param == "stacks" else {}
    schedule = timed(native, wait=3, warmup=1, active=4, repeat=1)
    with native.profiler(schedule, on_trace_ready=handler, **options) as profiler:
        for number in range(20):
            values @ values
            pause()
            if number == 9:
                handler.flush()
            profiler.step()
    del profiler
    handler.flush()
    return load(folder)


def test_steps_inside_and_outside_of_the_window_are_timed(recorded: Trace) -> None:
    clock = recorded.step_clocks["-"]
    assert [step.number for step in clock.recorded()] == [5, 6, 7]  # the profiler starts in step 4
    off = {step.number for step in clock.steps if not step.recorded}
    assert {1, 2, *range(10, 17)} <= off <= {1, 2, *range(9, 20)}  # then the times are written, in step 17 or later
    assert all(step.wall_ns >= 20_000_000 for step in clock.steps)
    base = advise(recorded).base
    assert base is not None
    assert base.measured_ns is not None
    assert base.measured_ns >= 20_000_000
    assert base.error is not None


def test_frames_are_sampled_only_while_steps_are_recorded(recorded: Trace) -> None:
    """With stacks, torch would record the frames of the sampling thread."""
    sampled = frames(recorded)
    assert sampled.most_common(sampled.at_ns > 0)[0][0] == PAUSE
    (gap,) = (one for one in advise(recorded, rules=["host-gap"]).advice)
    assert gap.place == PAUSE
    begin, end = recorded.meta.window_ns or (0, 0)
    assert begin - 100_000_000 < sampled.at_ns.min()
    assert sampled.at_ns.max() < end + 100_000_000
    assert [name for name in recorded.codes("name").values if "step_clock" in name and "_run" in name] == []


def test_sampling_ends_with_the_recording(native: Framework, tmp_path: Path) -> None:
    schedule = timed(native, wait=0, warmup=1, active=9)
    with native.profiler(schedule, on_trace_ready=native.trace_handler(tmp_path)) as profiler:
        for _ in range(3):
            pause()
            profiler.step()
    assert not [thread for thread in threading.enumerate() if thread.name == "perfkit-frames"]


@pytest.mark.parametrize("framework", ["paddle"], indirect=True)
def test_paddle_makes_no_events_while_its_profiler_is_closed(native: Framework, tmp_path: Path) -> None:
    """Other than before the first step."""
    used = []
    schedule = timed(native, wait=3, warmup=1, active=4, repeat=1)
    with native.profiler(schedule, on_trace_ready=native.trace_handler(tmp_path)) as profiler:
        for _ in range(20):
            used.append(native.module.profiler.utils.in_profiler_mode())
            profiler.step()
    assert used == [True, False, False, *[True] * 5, *[False] * 12]
