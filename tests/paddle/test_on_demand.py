"""Paddle records on demand: in a process, on all ranks of a job, and in ``paddle.Model.fit``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import perfkit_paddle
from perfkit_paddle.record import PaddleRecording
from tests.support.demanded_loop import (
    captured,
    check_a_signal_records_a_window,
    check_the_end_within_a_window,
    check_windows_follow_a_planned_one,
    steps_of,
    while_running,
)  # fmt: skip
from tests.support.jobs import check_all_ranks_record_together
from tests.support.paths import ROOT

pytestmark = pytest.mark.usefixtures("sockets")


def test_windows_on_demand_follow_a_planned_one(paddle: Any, tmp_path: Path) -> None:
    handler = perfkit_paddle.trace_handler(tmp_path, on_demand=True)
    values = paddle.ones([8, 8])
    profiler = paddle.profiler.Profiler(
        targets=[paddle.profiler.ProfilerTarget.CPU], on_trace_ready=handler,
        scheduler=perfkit_paddle.make_scheduler(closed=1, ready=1, record=2, repeat=1, on_demand=handler),
    )  # fmt: skip
    check_windows_follow_a_planned_one(profiler, lambda: values @ values, tmp_path, "matmul dygraph")


def test_a_signal_records_a_window(paddle: Any, tmp_path: Path) -> None:
    handler = perfkit_paddle.trace_handler(tmp_path, on_demand=True)
    profiler = paddle.profiler.Profiler(
        targets=[paddle.profiler.ProfilerTarget.CPU], on_trace_ready=handler,
        scheduler=perfkit_paddle.make_scheduler(on_demand=handler, ready=2),
    )  # fmt: skip
    check_a_signal_records_a_window(profiler, lambda: paddle.ones([2]) + 1, tmp_path)


def test_a_training_ends_within_its_window(paddle: Any, tmp_path: Path) -> None:
    recording = PaddleRecording(tmp_path, on_demand=True, targets=[paddle.profiler.ProfilerTarget.CPU])
    check_the_end_within_a_window(recording, lambda: paddle.ones([2]) + 1, tmp_path)


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
