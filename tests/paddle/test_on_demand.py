"""Paddle records on demand: in a process, on all ranks of a job, and in ``paddle.Model.fit``."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import perfkit_paddle
from perfkit_core.api import summarize
from perfkit_core.readers.load import load
from perfkit_paddle.record import PaddleRecording
from tests.support.demanded_loop import captured, while_running
from tests.support.jobs import check_all_ranks_record_together
from tests.support.paths import ROOT


def steps_of(folder: Path) -> list[int]:
    steps: list[int] = summarize(folder, "steps")["step"].tolist()
    return steps


def test_windows_on_demand_follow_a_planned_one(paddle: Any, tmp_path: Path) -> None:
    handler = perfkit_paddle.trace_handler(tmp_path, on_demand=True)
    values = paddle.ones([8, 8])
    with paddle.profiler.Profiler(
        targets=[paddle.profiler.ProfilerTarget.CPU], on_trace_ready=handler,
        scheduler=perfkit_paddle.make_scheduler(closed=1, ready=1, record=2, repeat=1, on_demand=handler),
    ) as profiler:  # fmt: skip

        def step() -> None:
            values @ values
            profiler.step()

        for _ in range(5):
            step()
        for _ in range(2):
            accepted, (recorded,) = while_running(lambda: captured(str(os.getpid()), 3), step)
            assert recorded.path
            window = list(range(accepted.first, accepted.last + 1))
            trace = load(recorded.path)
            assert trace.ints("step")[trace.rows("kind", "step")].tolist() == window
            assert trace.ints("step")[trace.rows("name", "matmul dygraph")].tolist() == window
    assert steps_of(tmp_path)[:2] == [2, 3]
    assert len(steps_of(tmp_path)) == 8


def test_a_signal_records_a_window(paddle: Any, tmp_path: Path) -> None:
    handler = perfkit_paddle.trace_handler(tmp_path, on_demand=True)
    scheduler = perfkit_paddle.make_scheduler(on_demand=handler, ready=2)
    with paddle.profiler.Profiler(
        targets=[paddle.profiler.ProfilerTarget.CPU], scheduler=scheduler, on_trace_ready=handler
    ) as profiler:
        for number in range(20):
            if number == 4:
                signal.raise_signal(signal.SIGUSR2)
            paddle.ones([2]) + 1
            profiler.step()
    assert steps_of(tmp_path) == list(range(7, 17))


def test_a_callback_records_on_demand(paddle: Any, tmp_path: Path) -> None:
    recording = PaddleRecording(tmp_path, on_demand=True, targets=[paddle.profiler.ProfilerTarget.CPU])
    recording.begin(100)

    def step() -> None:
        paddle.ones([2]) + 1
        recording.step_ended()

    step()
    accepted, _ = while_running(lambda: captured(str(tmp_path), 2), step)
    recording.finish()
    assert steps_of(tmp_path) == [accepted.first, accepted.last]
    assert accepted.first > 100


@pytest.mark.slow
def test_all_ranks_of_a_launcher_record_together(paddle: Any, tmp_path: Path) -> None:
    """The layer has two parameters. Each of their gradients is reduced in each step."""
    launcher = ["paddle.distributed.launch", "--nproc_per_node", "4", "--backend", "gloo", "--log_dir", "logs"]
    check_all_ranks_record_together(launcher, ROOT / "tests/support/paddle_job.py", tmp_path / "run", 2)
