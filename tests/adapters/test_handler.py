"""The handler stores every cycle, whatever fails around it, and never disturbs the training."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.readers.load import load
from perfkit_core.recording import writer
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage import store
from perfkit_core.trace.storage.store import INCOMPLETE_MARK
from tests.support.frameworks import Framework


def files(folder: Path) -> list[Path]:
    store.flush(folder)
    return sorted(folder.glob("*.parquet"))


def steps_of(trace: Trace) -> list[int]:
    return sorted(trace.ints("step")[trace.rows("kind", "step")].tolist())


def train(native: Framework, steps: int, **options: Any) -> list[float]:
    """Return the losses of a training within a profiler."""
    losses = []
    with native.profiler(**options) as profiler:
        for loss in native.losses(steps, dropout=0.5):
            losses.append(loss)
            profiler.step()
    return losses


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "perfkit"]


def test_a_recorded_training_has_the_same_losses(native: Framework, tmp_path: Path) -> None:
    schedule = native.schedule(wait=1, warmup=1, active=2)
    options = {"on_trace_ready": native.trace_handler(tmp_path), **dict.fromkeys(native.options, True)}
    recorded = train(native, 12, schedule=schedule, **options)
    assert len(files(tmp_path)) == 3
    assert recorded == list(native.losses(12, dropout=0.5))


def test_repeating_schedules_write_a_file_a_cycle(native: Framework, tmp_path: Path) -> None:
    """Three cycles of one process become three numbered files of one recording."""
    schedule = native.schedule(wait=1, warmup=1, active=2, repeat=3)
    train(native, 13, schedule=schedule, on_trace_ready=native.trace_handler(tmp_path))
    traces = [load(path) for path in files(tmp_path)]
    assert [steps_of(trace) for trace in traces] == [[2, 3], [6, 7], [10, 11]]
    assert [trace.meta.cycle for trace in traces] == [0, 1, 2]
    assert len({trace.meta.recording for trace in traces}) == 1
    assert steps_of(load(tmp_path)) == [2, 3, 6, 7, 10, 11]


def test_a_loop_without_step_is_reported(native: Framework, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    schedule = native.schedule(wait=1, warmup=1, active=1)
    with native.profiler(schedule, on_trace_ready=native.trace_handler(tmp_path)) as profiler:
        native.ones(3).sum()
    del profiler
    gc.collect()
    (message,) = messages(caplog)
    assert f"recorded nothing into {tmp_path}" in message


def test_a_handler_without_a_folder_is_reported_once(native: Framework, caplog: pytest.LogCaptureFixture) -> None:
    """The profiler calls ``trace_handler`` itself after each cycle. The training goes on."""
    writer.tell_uncalled.cache_clear()
    schedule = native.schedule(wait=1, warmup=1, active=2)
    assert len(train(native, 8, schedule=schedule, on_trace_ready=native.trace_handler)) == 8
    (message,) = messages(caplog)
    assert 'pass on_trace_ready=trace_handler("runs/baseline"), not on_trace_ready=trace_handler' in message


def test_an_exception_in_the_training_keeps_the_recording(native: Framework, tmp_path: Path) -> None:
    def training() -> None:
        with native.profiler(on_trace_ready=native.trace_handler(tmp_path)) as profiler:
            for step, _ in enumerate(native.losses(3)):
                profiler.step()
                1 / (1 - step)

    with pytest.raises(ZeroDivisionError):
        training()
    assert steps_of(load(tmp_path))[:2] == [0, 1]


def test_other_callbacks_run_and_may_fail(native: Framework, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The exception is logged, perfkit's file is written, and the following callbacks run."""
    called: list[Any] = []

    def fail(profiler: Any) -> None:
        raise RuntimeError("not mine")

    train(native, 2, on_trace_ready=native.trace_handler(tmp_path, also=[fail, called.append]))
    assert len(files(tmp_path)) == len(called) == 1
    assert "not mine" in caplog.text
    assert "training continues" in caplog.text
    assert not (tmp_path / INCOMPLETE_MARK).exists()


def test_a_folder_that_cannot_be_written_is_logged(
    native: Framework, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    handler = native.trace_handler(blocked)
    assert len(train(native, 2, on_trace_ready=handler)) == 2
    assert handler.flush()
    assert "a cycle is missing in" in caplog.text


def test_a_failed_cycle_marks_the_run(native: Framework, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handler = native.trace_handler(tmp_path)
    monkeypatch.setattr(handler, "_take", lambda profiler, place: 1 / 0)
    train(native, 2, on_trace_ready=handler)
    assert "ZeroDivisionError" in (tmp_path / INCOMPLETE_MARK).read_text()
