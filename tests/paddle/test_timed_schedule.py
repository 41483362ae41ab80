"""``perfkit_paddle.make_scheduler``: the states of Paddle's scheduler, the times of all steps, and samples of Python
frames."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import perfkit_paddle
from perfkit_core.advice.engine import advise
from perfkit_core.advice.frames import frames
from perfkit_core.readers.load import load


@pytest.mark.parametrize(
    "cycle",
    [{"closed": 1, "ready": 1, "record": 2}, {"closed": 0, "ready": 2, "record": 1, "repeat": 2, "skip_first": 3}],
)
def test_the_states_are_those_of_paddle(paddle, cycle: dict[str, int]) -> None:
    ours, native = perfkit_paddle.make_scheduler(**cycle), paddle.profiler.make_scheduler(**cycle)
    assert [ours(step) for step in range(20)] == [native(step) for step in range(20)]
    ours.clock.cycle_taken()  # ends the sampling of frames


def test_steps_are_timed_and_frames_are_sampled(paddle, tmp_path: Path) -> None:
    """Record steps 4 to 7 of 20. A step waits 20 ms."""
    handler = perfkit_paddle.trace_handler(tmp_path)
    values, used = paddle.ones([64, 64]), []
    with paddle.profiler.Profiler(
        targets=[paddle.profiler.ProfilerTarget.CPU], record_shapes=True, on_trace_ready=handler,
        scheduler=perfkit_paddle.make_scheduler(closed=3, ready=1, record=4, repeat=1),
    ) as profiler:  # fmt: skip
        for _ in range(20):
            used.append(paddle.profiler.utils.in_profiler_mode())
            values @ values
            pause()
            profiler.step()
    handler.flush()
    trace = load(tmp_path)
    timed = trace.step_clocks["-"]
    assert [step.number for step in timed.recorded()] == [5, 6, 7]  # the profiler starts in step 4
    off = {step.number for step in timed.steps if not step.recorded}
    assert {1, 2} <= off <= {1, 2, *range(9, 20)}
    assert len(off) > 8
    # Paddle makes no events while the profiler is closed, other than before the first step
    assert used == [True, False, False, *[True] * 5, *[False] * 12]
    line = pause.__code__.co_firstlineno + 1
    sampled = frames(trace)
    assert sampled.most_common(sampled.at_ns > 0)[0][0] == f"{__file__}:{line} (pause)"
    (gap,) = (one for one in advise(trace, rules=["host-gap"]).advice)
    assert gap.place == f"{__file__}:{line} (pause)"


def pause() -> None:
    time.sleep(0.02)
