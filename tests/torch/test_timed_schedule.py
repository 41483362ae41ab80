"""``perfkit_torch.schedule``: the actions of torch's schedule, the times of all steps, and samples of Python frames."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import perfkit_torch
from perfkit_core.advice.engine import advise
from perfkit_core.advice.frames import frames
from perfkit_core.api import summarize
from perfkit_core.model.trace import Trace
from perfkit_core.readers.load import load

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    "cycle",
    [{"wait": 1, "warmup": 1, "active": 2}, {"wait": 0, "warmup": 2, "active": 1, "repeat": 2, "skip_first": 3}],
)
def test_the_actions_are_those_of_torch(cycle: dict[str, int]) -> None:
    ours, native = perfkit_torch.schedule(**cycle), torch.profiler.schedule(**cycle)
    assert [ours(step) for step in range(20)] == [native(step) for step in range(20)]
    ours.clock.cycle_taken()  # ends the sampling of frames


def recorded(folder: Path, **options: Any) -> Trace:
    """Record steps 4 to 7 of 20. A step waits 20 ms."""
    handler = perfkit_torch.trace_handler(folder)
    values = torch.ones(64, 64)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=perfkit_torch.schedule(wait=3, warmup=1, active=4, repeat=1), on_trace_ready=handler, **options,
    ) as profiler:  # fmt: skip
        for _ in range(20):
            values @ values
            pause()
            profiler.step()
    handler.flush()
    return load(folder)


def pause() -> None:
    time.sleep(0.02)


def test_steps_inside_and_outside_of_the_window_are_timed(tmp_path: Path) -> None:
    trace = recorded(tmp_path)
    timed = trace.meta.timed["-"]
    assert [step.number for step in timed.recorded()] == [5, 6, 7]  # the profiler starts in step 4
    off = {step.number for step in timed.steps if not step.recorded}
    assert {1, 2} <= off <= {1, 2, *range(9, 20)}
    assert len(off) > 8
    assert all(step.wall_ns >= 20_000_000 for step in timed.steps)
    base = advise(trace).base
    assert base is not None
    assert base.measured_ns is not None
    assert base.measured_ns >= 20_000_000
    assert base.error is not None


def test_the_cpu_utilisation_is_stored_as_by_paddle(tmp_path: Path) -> None:
    """Waiting takes no CPU time of the process, and a process cannot use more than all processors."""
    trace = recorded(tmp_path)
    found = summarize(trace, "device").set_index("device")["utilisation_ratio"]
    assert found.to_dict() == {f"cpu ({scope})": ratio for scope, ratio in trace.meta.cpu_utilisation.items()}
    assert set(trace.meta.cpu_utilisation) == {"process", "system"}
    assert 0 < trace.meta.cpu_utilisation["process"] <= (os.cpu_count() or 1)
    assert 0 <= trace.meta.cpu_utilisation["system"] <= 1


@pytest.mark.parametrize("options", [{}, {"with_stack": True}], ids=["plain", "with_stack"])
def test_frames_are_sampled_while_steps_are_recorded(tmp_path: Path, options: dict[str, bool]) -> None:
    trace = recorded(tmp_path, **options)
    sampled = frames(trace)
    assert len(sampled)
    line = pause.__code__.co_firstlineno + 1
    assert sampled.most_common(sampled.at_ns > 0)[0][0] == f"{__file__}:{line} (pause)"
    (gap,) = (one for one in advise(trace, rules=["host-gap"]).advice)
    assert gap.place == f"{__file__}:{line} (pause)"
    # torch would record the frames of the sampling thread
    names = trace.codes("name").values
    assert [name for name in names if "frame_sampler" in name and "_run" in name] == []


def test_sampling_ends_with_the_recording(tmp_path: Path) -> None:
    handler = perfkit_torch.trace_handler(tmp_path)
    schedule = perfkit_torch.schedule(wait=0, warmup=1, active=9)
    with torch.profiler.profile(schedule=schedule, on_trace_ready=handler) as profiler:
        for _ in range(3):
            pause()
            profiler.step()
    assert not [thread for thread in threading.enumerate() if thread.name == "perfkit-frames"]


def test_the_frames_of_other_steps_are_not_sampled(tmp_path: Path) -> None:
    trace = recorded(tmp_path)
    at_ns, (begin, end) = frames(trace).at_ns, trace.meta.window_ns or (0, 0)
    assert begin - 100_000_000 < at_ns.min()
    assert at_ns.max() < end + 100_000_000


@pytest.mark.parametrize("everything", [False, True], ids=["default", "profile_all_threads"])
def test_busy_threads_without_events_are_named(tmp_path: Path, everything: bool) -> None:
    """In each step, one thread computes while the training waits for it. Another thread waits all the time."""
    begin, done, end = threading.Semaphore(0), threading.Semaphore(0), threading.Event()
    config = {}
    if everything:
        try:
            config["experimental_config"] = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
        except TypeError:
            pytest.skip("this torch cannot record all threads")

    def compute() -> None:
        values = torch.ones(256, 256)
        while begin.acquire() and not end.is_set():
            for _ in range(50):
                values @ values
            done.release()

    threads = [threading.Thread(target=compute, name="ranker"), threading.Thread(target=end.wait, name="idle one")]
    for thread in threads:
        thread.start()
    handler = perfkit_torch.trace_handler(tmp_path)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=perfkit_torch.schedule(wait=1, warmup=1, active=3, repeat=1), on_trace_ready=handler, **config,
    ) as profiler:  # fmt: skip
        for _ in range(6):
            torch.ones(2) + 1
            begin.release()
            done.acquire()
            profiler.step()
    end.set()
    begin.release()
    for thread in threads:
        thread.join()
    texts = [finding.message for finding in load(tmp_path).quality if finding.code == "threads-not-recorded"]
    assert len(texts) == (not everything)
    assert all("(ranker)" in text and "profile_all_threads=True" in text for text in texts)
