"""Recording with Paddle: every way to use its profiler, and every failure around it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfkit_core.errors import CaptureError
from perfkit_core.readers.load import load
from perfkit_core.recording.environment import environment_rank
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage import store
from perfkit_core.trace.storage.store import INCOMPLETE_MARK
from perfkit_paddle import on_trace_ready, trace_handler
from perfkit_paddle.record import record_script

Train = Callable[[int], Iterator[int]]


@pytest.fixture
def train(paddle: Any) -> Train:
    """Return an iterator over the training steps of a small model."""
    model = paddle.nn.Sequential(paddle.nn.Linear(8, 8), paddle.nn.ReLU(), paddle.nn.Linear(8, 1))
    optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters())
    data = paddle.rand([4, 8])

    def steps(count: int) -> Iterator[int]:
        for step in range(count):
            model(data).mean().backward()
            optimizer.step()
            optimizer.clear_grad()
            yield step

    return steps


def profiler(paddle: Any, **options: Any) -> Any:
    gc.collect()  # frees the profiler of another test, because Paddle allows only one
    return paddle.profiler.Profiler(targets=[paddle.profiler.ProfilerTarget.CPU], **options)


def files(folder: Path) -> list[Path]:
    store.flush(folder)
    return sorted(folder.glob("*.parquet"))


def step_numbers(trace: Trace) -> list[int]:
    return sorted(trace.ints("step")[trace.rows("kind", "step")].tolist())


def nodes_of(result: Any) -> list[tuple[str, str, int, int, str]]:
    """Return name, type, start, end and the parent's name of each node in Paddle's tree, without the artificial
    roots."""
    found = []
    for root in result.get_data().values():
        stack = [(child, "") for child in root.children_node]
        while stack:
            node, parent = stack.pop()
            found.append((node.name, node.type.name, node.start_ns, node.end_ns, parent))
            stack += [(child, node.name) for child in node.children_node]
    return sorted(found)


def nodes_in(trace: Trace) -> list[tuple[str, str, int, int, str]]:
    frame = trace.to_pandas()
    frame = frame[frame["kind"] != "memory"]
    names = trace.to_pandas()["name"].astype(object).to_numpy()
    parents = [names[row] if row >= 0 else "" for row in frame["parent"]]
    ends = frame["start_ns"] + frame["dur_ns"]
    return sorted(zip(frame["name"], frame["category"], frame["start_ns"], ends, parents, strict=True))


def test_what_is_written_is_paddles_tree(paddle: Any, train: Train, tmp_path: Path) -> None:
    """Names, types, times in ns and parents of a stored live recording equal Paddle's tree."""
    seen = []
    handler = trace_handler(tmp_path, also=[lambda p: seen.append(nodes_of(p.profiler_result))])
    with profiler(paddle, scheduler=(1, 4), on_trace_ready=handler, profile_memory=True) as prof:
        for _ in train(5):
            with paddle.profiler.RecordEvent("my label"):
                pass
            prof.step()
    trace = load(tmp_path)
    assert nodes_in(trace) == seen[0]
    assert len(seen[0]) > 100
    assert step_numbers(trace) == [1, 2, 3]
    assert trace.rows("kind", "memory").any()
    labels = trace.to_pandas().query("kind == 'annotation'")
    assert labels["name"].tolist() == ["my label"] * 3
    assert labels["step"].tolist() == [1, 2, 3]
    assert trace.meta.framework_version == paddle.__version__
    assert trace.meta.options == {"record_shapes": False, "profile_memory": True, "with_flops": False}


def test_the_tree_walk_gives_the_same(paddle: Any, train: Train, tmp_path: Path) -> None:
    """If Paddle cannot save, the tree of objects gives the same table. A finding reports this, and the run is
    complete."""

    class Unsaved:
        def __init__(self, result: Any) -> None:
            self.get_data, self.get_extra_info = result.get_data, result.get_extra_info

        def save(self, path: str, format: str) -> None:
            raise OSError("no descriptor left")

    traces = []

    def both(prof: Any) -> None:
        traces.append(on_trace_ready.take(prof, environment_rank()).finish())
        prof.profiler_result = Unsaved(prof.profiler_result)
        traces.append(on_trace_ready.take(prof, environment_rank()).finish())

    with profiler(paddle, on_trace_ready=both, profile_memory=True) as prof:
        for _ in train(2):
            prof.step()
    saved, walked = traces
    assert saved.events.equals(walked.events)
    assert {f.code for f in walked.quality} - {f.code for f in saved.quality} == {"save-failed"}
    assert saved.meta.thread_names == walked.meta.thread_names


def test_start_and_stop(paddle: Any, train: Train, tmp_path: Path) -> None:
    """Without ``with`` and without a scheduler, one file is written. The step that stop() ended is reported."""
    prof = profiler(paddle, on_trace_ready=trace_handler(tmp_path))
    prof.start()
    for step in train(3):
        if step < 2:
            prof.step()
    prof.stop()
    trace = load(tmp_path)
    assert len(files(tmp_path)) == 1
    assert step_numbers(trace) == [0, 1, 2]
    assert "partial-step" in {f.code for f in trace.quality}


def test_a_timer_is_reported_when_it_starts(paddle: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A Profiler with ``timer_only`` never calls its handler. Deleting the handler logs no second warning."""
    with profiler(paddle, timer_only=True, on_trace_ready=trace_handler(tmp_path)) as prof:
        (message,) = (record.getMessage() for record in caplog.records if record.name == "perfkit")
        prof.step()
    del prof
    gc.collect()
    assert f"will record nothing into {tmp_path}, because timer_only=True measures times only: leave it out" in message
    assert len([record for record in caplog.records if record.name == "perfkit"]) == 1


def test_a_loop_without_step_and_schedule_is_explained(paddle: Any, tmp_path: Path) -> None:
    with profiler(paddle, on_trace_ready=trace_handler(tmp_path)):
        paddle.ones([3]).sum()
    (finding,) = (finding for finding in load(tmp_path).quality if finding.code == "partial-step")
    assert "before any call of the profiler's step()" in finding.message


def test_a_scheduler_may_be_a_function(paddle: Any, train: Train, tmp_path: Path) -> None:
    """The scheduler is a function of the step number."""
    state = paddle.profiler.ProfilerState

    def schedule(step: int) -> Any:
        return {2: state.READY, 3: state.RECORD, 4: state.RECORD_AND_RETURN}.get(step, state.CLOSED)

    with profiler(paddle, scheduler=schedule, on_trace_ready=trace_handler(tmp_path)) as prof:
        for _ in train(7):
            prof.step()
    assert step_numbers(load(tmp_path)) == [3, 4]


def test_a_failing_extraction_marks_the_run(paddle: Any, tmp_path: Path) -> None:
    """A profiler without a result (``timer_only``) raises no error. The run folder lists the missing cycle and the
    reason."""

    class Empty:
        profiler_result = None

    trace_handler(tmp_path)(Empty())
    assert "recorded nothing" in (tmp_path / INCOMPLETE_MARK).read_text()


def test_ranks_come_from_the_launcher(
    paddle: Any, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rank in PADDLE_TRAINER_ID is used for rows, metadata, thread names and file name, even if other launchers
    have set a rank."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "3")
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "8")
    with profiler(paddle, on_trace_ready=trace_handler(tmp_path)) as prof:
        for _ in train(2):
            prof.step()
    (path,) = files(tmp_path)
    trace = load(path)
    assert "rank00003" in path.name
    assert set(trace.ints("rank")) == {3}
    assert (trace.meta.ranks, trace.meta.world_size) == ((3,), 8)
    assert all(key.startswith("3:") for key in trace.meta.thread_names)


def test_runs_of_a_static_program_are_steps(paddle: Any, tmp_path: Path) -> None:
    """The startup program and another program do not count."""
    paddle.enable_static()
    try:
        with paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()):
            loss = paddle.mean(paddle.static.data("x", [4, 8]) * 2.0)
            run, feed = paddle.static.Executor().run, {"x": np.ones((4, 8), np.float32)}
            recording = record_script(tmp_path, None, {})
            executor = paddle.static.Executor()
            executor.run(paddle.static.default_startup_program())
            for _ in range(4):
                executor.run(feed=feed, fetch_list=[loss])
            assert recording.finish().files == 1
            assert type(executor).run is run.__func__
    finally:
        paddle.disable_static()
    assert step_numbers(load(tmp_path)) == [1, 2, 3]


def test_two_profilers_at_once_are_refused_clearly(paddle: Any, tmp_path: Path) -> None:
    """Paddle allows one profiler. A second profiler raises a CaptureError with this reason instead of an
    AttributeError."""
    other = paddle.profiler.Profiler()
    with pytest.raises(CaptureError, match="another Profiler"):
        record_script(tmp_path, None, {})
    del other
    recording = record_script(tmp_path, None, {})
    assert recording.finish().files == 1
