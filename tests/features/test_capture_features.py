"""Schedules and threads, recorded live in both frameworks."""

from __future__ import annotations

import gzip
import json
import os
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perfkit_paddle
import perfkit_torch
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage import store
from tests.support.frameworks import Framework

STEPS = 14


def steps_of(trace: Trace) -> list[int]:
    return sorted(trace.ints("step")[trace.rows("kind", "step")].tolist())


def cycles_of(run: Path) -> list[list[int]]:
    """Return the steps of each file, in the order of the cycles. A last cycle without steps is left out."""
    store.flush(run)
    cycles = [load(path) for path in sorted(run.glob("*.parquet"))]
    assert [trace.meta.cycle for trace in cycles] == list(range(len(cycles)))
    assert len({trace.meta.recording for trace in cycles}) == 1
    steps = [steps_of(trace) for trace in cycles]
    return steps if steps[-1] else steps[:-1]


def label_steps(trace: Trace, label: str) -> list[int]:
    return trace.ints("step")[trace.rows("name", label)].tolist()


def expected_cycles(is_recorded: Callable[[int], bool], is_last: Callable[[int], bool]) -> list[list[int]]:
    """Return the cycles of the framework's own schedule, including a last cycle that the end of the loop cuts off."""
    cycles: list[list[int]] = [[]]
    for step in filter(is_recorded, range(STEPS)):
        cycles[-1].append(step)
        if is_last(step):
            cycles.append([])
    return [cycle for cycle in cycles if cycle]


SCHEDULES = [
    ("torch", {"wait": 1, "warmup": 1, "active": 2, "repeat": 2}),
    ("torch", {"wait": 2, "warmup": 0, "active": 1}),
    ("torch", {"wait": 4, "warmup": 1, "active": 1, "skip_first": 1, "skip_first_wait": 1}),
    ("paddle", {"closed": 1, "ready": 1, "record": 2, "repeat": 2}),
    ("paddle", {"closed": 0, "ready": 1, "record": 3, "repeat": 2, "skip_first": 3}),
    ("paddle", {"closed": 0, "ready": 1, "record": 1}),
]


@pytest.mark.filterwarnings("ignore:Profiler won't be using warmup")  # torch warns about warmup=0
@pytest.mark.filterwarnings("ignore:Improper Profiler state transform")  # Paddle, if the loop ends in a warm-up step
@pytest.mark.parametrize(("framework", "options"), SCHEDULES, ids=str, indirect=["framework"])
def test_cycles_have_the_steps_of_the_schedule(native: Framework, options: dict[str, int], tmp_path: Path) -> None:
    """The files contain the steps that the framework's own schedule selects. Step N has N + 1 calls of an operator."""
    schedule, (*_, record, last) = native.schedule(**options), native.states
    handled: list[int] = []
    handler = native.trace_handler(tmp_path, also=[lambda profiler: handled.append(profiler.step_num)])
    with native.profiler(schedule, on_trace_ready=handler) as profiler:
        for step in range(STEPS):
            for _ in range(step + 1):
                native.ones(2).sin()
            profiler.step()
    expected = expected_cycles(lambda step: schedule(step) in (record, last), lambda step: schedule(step) is last)
    assert cycles_of(tmp_path) == expected
    assert len(handled) == len(list(tmp_path.glob("*.parquet")))
    counts = Counter(label_steps(load(tmp_path), SINE[native.name]))
    assert counts == {step: step + 1 for cycle in expected for step in cycle}


SINE = {"torch": "aten::sin", "paddle": "sin dygraph"}


def in_a_thread(work: Callable[[], Any]) -> int:
    """Run a function in a new thread and wait for it. Return the operating system's id of the thread."""
    ids: list[int] = []
    thread = threading.Thread(target=lambda: (ids.append(threading.get_native_id()), work()))
    thread.start()
    thread.join()
    return ids[0]


def torch_steps(torch: Any, run: Path, step: Callable[[int], Any], **options: Any) -> Trace:
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=3, repeat=1)
    handler = perfkit_torch.trace_handler(run)
    with torch.profiler.profile(schedule=schedule, on_trace_ready=handler, **options) as profiler:
        for number in range(4):
            step(number)
            profiler.step()
    return load(run)


def test_torch_threads_are_recorded_with_profile_all_threads(torch: Any, tmp_path: Path) -> None:
    """Other threads are only recorded with profile_all_threads. Their events have their thread's id and the running
    step."""
    ids: list[int] = []

    def step(number: int) -> None:
        ids.append(in_a_thread(lambda: torch.ones(2).exp()))

    assert label_steps(torch_steps(torch, tmp_path / "one", step), "aten::exp") == []
    ids.clear()
    config = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    trace = torch_steps(torch, tmp_path / "all", step, experimental_config=config)
    assert label_steps(trace, "aten::exp") == [1, 2, 3]
    assert trace.ints("tid")[trace.rows("name", "aten::exp")].tolist() == ids[1:]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # TorchScript
def test_torch_tasks_have_the_step_and_their_own_thread(torch: Any, tmp_path: Path) -> None:
    """A forked task runs on a thread of torch's pool. Its events have the running step and that thread's id, and no
    parent on another thread."""
    unit = torch.jit.CompilationUnit(
        """
def task(x):
    return torch.cumsum(x, 0)
def both(x):
    running = torch.jit.fork(task, x)
    return torch.sin(x) + torch.jit.wait(running)
"""
    )
    trace = torch_steps(torch, tmp_path, lambda number: unit.both(torch.ones(4)))
    frame = trace.to_pandas()
    tasks = frame[frame["name"] == "aten::cumsum"]
    main = frame[frame["kind"] == "step"]["tid"].iloc[0]
    assert tasks["step"].tolist() == [1, 2, 3]
    assert (tasks["tid"] != main).all()
    assert set(frame.loc[tasks["parent"], "tid"]) == set(tasks["tid"])


def test_backward_nodes_on_another_thread_have_their_step(traces: Path) -> None:
    """The backward pass on a GPU runs on a separate thread. Each backward node is in the step whose span contains it in
    torch's file, and it has the recorded sequence number."""
    path = traces / "torch" / "v100-ns-resolution.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    spans = [e for e in events if e.get("name", "").startswith("ProfilerStep#") and e.get("cat") == "user_annotation"]
    nodes = [e for e in events if e.get("name", "").startswith("autograd::engine::evaluate_function")]
    trace = load(path)
    rows = np.flatnonzero(trace.host & np.char.startswith(names_of(trace), "autograd::engine::evaluate_function"))
    assert len(rows) == len(nodes) > 1000
    assert {e["tid"] for e in nodes}.isdisjoint({e["tid"] for e in spans})
    order = sorted(nodes, key=lambda e: e["ts"])
    assert trace.ints("step")[rows].tolist() == [step_around(spans, e["ts"]) for e in order]
    assert trace.rows("phase", "backward")[rows].all()
    recorded = [e["args"].get("Sequence number", -1) for e in order]
    assert trace.ints("sequence")[rows].tolist() == recorded


def names_of(trace: Trace) -> Any:
    codes = trace.codes("name")
    return np.array(codes.values)[codes.codes]


def step_around(spans: list[dict[str, Any]], time: float) -> int:
    found = [int(e["name"].split("#")[1]) for e in spans if e["ts"] <= time < e["ts"] + e["dur"]]
    return found[0] if found else -1


def test_paddle_threads_are_recorded(paddle: Any, tmp_path: Path) -> None:
    """Paddle records every thread. Events have their thread's id and the running step."""
    ids: list[int] = []
    with paddle.profiler.Profiler(scheduler=(1, 4), on_trace_ready=perfkit_paddle.trace_handler(tmp_path)) as profiler:
        for _ in range(5):
            ids.append(in_a_thread(lambda: paddle.ones([2]).exp()))
            profiler.step()
    trace = load(tmp_path)
    assert label_steps(trace, "exp dygraph") == [1, 2, 3]
    assert trace.ints("tid")[trace.rows("name", "exp dygraph")].tolist() == ids[1:4]


@pytest.mark.parametrize("workers", [0, 1])
def test_the_wait_for_paddles_loader_is_recorded(paddle: Any, workers: int, tmp_path: Path) -> None:
    """Without workers, the thread that reads the data is recorded. Worker processes are not recorded, only the wait for
    them. More steps are recorded than the 6 batches that the thread reads ahead, so that it must read during them."""
    readers: set[int] = set()
    steps = list(range(1, 9))

    class Rows(paddle.io.Dataset):  # type: ignore[misc, name-defined]
        def __getitem__(self, index: int) -> Any:
            readers.add(threading.get_native_id())
            with paddle.profiler.RecordEvent("reading"):
                return np.full(2, index, np.float32)

        def __len__(self) -> int:
            return 12

    profiler = paddle.profiler.Profiler(scheduler=(1, 9), on_trace_ready=perfkit_paddle.trace_handler(tmp_path))
    profiler.start()
    for batch in paddle.io.DataLoader(Rows(), batch_size=1, num_workers=workers):
        batch[0].sin()
        profiler.step()
    profiler.stop()
    trace = load(tmp_path)
    waits = trace.rows("kind", "dataloader")
    assert trace.ints("step")[waits].tolist() == steps
    reading = trace.rows("name", "reading")
    assert set(trace.ints("tid")[reading]) == readers  # only filled if this process reads the data
    assert set(label_steps(trace, "reading")) <= {-1, *steps}
    assert reading.any() == (workers == 0)
    assert set(trace.ints("pid")[trace.host]) == {os.getpid()}
