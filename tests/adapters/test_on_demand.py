"""The frameworks record on demand: in a process, in callbacks, and on all ranks of a job."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.readers.load import load
from perfkit_core.recording.capture import CaptureClient
from tests.support.demanded_loop import captured, steps_of, while_running
from tests.support.frameworks import Framework
from tests.support.jobs import check_all_ranks_record_together
from tests.support.paths import ROOT

pytestmark = pytest.mark.usefixtures("sockets")


def test_windows_on_demand_follow_a_planned_one(native: Framework, tmp_path: Path) -> None:
    """The planned window is that of steps 2 and 3. The steps before a window are timed, so the recording knows what a
    step takes without the profiler."""
    handler = native.trace_handler(tmp_path, on_demand=True)
    schedule = native.schedule(wait=1, warmup=1, active=2, repeat=1, on_demand=handler)
    values = native.ones(8, 8)
    profiler = native.profiler(schedule, on_trace_ready=handler)
    with profiler:

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
            assert trace.ints("step")[trace.rows("name", native.product)].tolist() == window
        assert steps_of(tmp_path)[:2] == [2, 3]
    assert len(steps_of(tmp_path)) == 8


def test_a_signal_records_a_window(native: Framework, tmp_path: Path) -> None:
    """SIGUSR2 is sent in step 4. Windows have two steps of warm-up."""
    handler = native.trace_handler(tmp_path, on_demand=True)
    profiler = native.profiler(native.schedule(warmup=2, on_demand=handler), on_trace_ready=handler)
    with profiler:
        for number in range(20):
            if number == 4:
                signal.raise_signal(signal.SIGUSR2)
            native.ones(2) + 1
            profiler.step()
    assert steps_of(tmp_path) == list(range(7, 17))


@pytest.fixture
def recording(native: Framework, tmp_path: Path) -> Any:
    """Return what a callback of a training framework calls."""
    return native.CallbackRecording(tmp_path, on_demand=True, **native.on_host)


def stepping(native: Framework, recording: Any) -> Callable[[], None]:
    """Return what runs a step. The first step has ended."""
    recording.begin(100)

    def step() -> None:
        native.ones(2) + 1
        recording.step_ended()

    step()
    return step


def test_a_training_ends_within_its_window(native: Framework, recording: Any, tmp_path: Path) -> None:
    """The process of the training lives on."""
    step = stepping(native, recording)
    with CaptureClient(str(tmp_path)) as request:
        accepted = while_running(lambda: request.ask(999), step)
        while recording.step < accepted.first + 3:
            step()
        end = recording.step
        recording.finish()
        (result,) = request.wait(accepted, lambda text: None)
    assert (result.done, result.steps) == (True, (accepted.first, end - 1))
    assert result.error == f"the training ended before step {end} was complete"
    assert steps_of(tmp_path) == list(range(accepted.first, end))


def test_a_callback_records_on_demand(native: Framework, recording: Any, tmp_path: Path) -> None:
    accepted, _ = while_running(lambda: captured(str(tmp_path), 2), stepping(native, recording))
    recording.finish()
    assert steps_of(tmp_path) == [accepted.first, accepted.last]
    assert accepted.first > 100


LAUNCHERS = {
    "torch": ["torch.distributed.run", "--nproc-per-node", "2"],
    "paddle": ["paddle.distributed.launch", "--nproc_per_node", "2", "--backend", "gloo", "--log_dir", "logs"],
}


@pytest.mark.slow
def test_all_ranks_of_a_launcher_record_together(native: Framework, tmp_path: Path) -> None:
    """In each step, torch's DistributedDataParallel reduces its only bucket of gradients. In Paddle, the gradients of
    the two parameters are reduced."""
    script = ROOT / "tests" / "support" / f"{native.name}_job.py"
    all_reduces = {"torch": 1, "paddle": 2}[native.name]
    check_all_ranks_record_together(LAUNCHERS[native.name], script, tmp_path / "run", all_reduces)
