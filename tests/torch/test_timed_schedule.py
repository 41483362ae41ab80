"""``perfkit_torch.schedule``: the actions of torch's schedule, the times of all steps, and samples of Python frames."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import perfkit_torch
from perfkit_core.advice.engine import advise
from perfkit_core.advice.frames import frames
from perfkit_core.api import summarize
from perfkit_core.readers.load import load
from perfkit_core.recording import step_clock
from perfkit_core.trace.model.trace import Trace
from perfkit_torch.on_trace_ready import _unrecorded_threads
from tests.support.events import host
from tests.support.events import trace as made

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
    """Record steps 4 to 7 of 20. A step waits 20 ms. The recording is written before step 10 begins."""
    handler = perfkit_torch.trace_handler(folder)
    values = torch.ones(64, 64)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=perfkit_torch.schedule(wait=3, warmup=1, active=4, repeat=1), on_trace_ready=handler, **options,
    ) as profiler:  # fmt: skip
        for number in range(20):
            values @ values
            pause()
            if number == 9:
                handler.flush()
            profiler.step()
    handler.flush()
    return load(folder)


def pause() -> None:
    time.sleep(0.02)


def test_steps_inside_and_outside_of_the_window_are_timed(tmp_path: Path) -> None:
    trace = recorded(tmp_path)
    timed = trace.step_clocks["-"]
    assert [step.number for step in timed.recorded()] == [5, 6, 7]  # the profiler starts in step 4
    off = {step.number for step in timed.steps if not step.recorded}
    assert {1, 2, *range(10, 20)} <= off <= {1, 2, *range(9, 20)}
    assert all(step.wall_ns >= 20_000_000 for step in timed.steps)
    base = advise(trace).base
    assert base is not None
    assert base.measured_ns is not None
    assert base.measured_ns >= 20_000_000
    assert base.error is not None


def test_the_cpu_utilisation_is_stored_as_by_paddle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is read where the recorded steps begin and end. Between two readings, the process uses 150 of 100 ns,
    and 3 of 4 ticks of the processors are busy."""
    readings = itertools.count()

    def read(processors: Any) -> None:
        number = next(readings)
        processors._times, processors._threads = (100 * number, 150 * number, 3 * number, 4 * number), {}

    monkeypatch.setattr(step_clock._Processors, "__init__", read)
    trace = recorded(tmp_path)
    assert next(readings) == 2
    assert trace.meta.cpu_utilisation == {"process": 1.5, "system": 0.75}
    found = summarize(trace, "device").set_index("device")["utilisation_ratio"]
    assert found.to_dict() == {"cpu (process)": 1.5, "cpu (system)": 0.75}


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
    assert [name for name in names if "step_clock" in name and "_run" in name] == []


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


def test_three_busy_threads_without_events_are_named() -> None:
    """Threads with less than 5% of the time, and threads with events, do not count."""
    trace = made([host("op", "operator", 0, 10)])
    busy = {number: (name, 0.05) for number, name in enumerate("abcd", 100)}
    threads = {int(trace.ints("tid")[0]): ("recorded", 1.0), 99: ("waits", 0.049), **busy}
    (finding,) = set(_unrecorded_threads(trace, threads).quality) - set(trace.quality)
    assert finding.code == "threads-not-recorded"
    assert "(a, b, c, …)" in str(finding.message)
    assert _unrecorded_threads(trace, {99: ("waits", 0.049)}) is trace


@pytest.mark.parametrize("everything", [False, True], ids=["default", "profile_all_threads"])
def test_busy_threads_without_events_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, everything: bool
) -> None:
    """In each step, a thread computes while the training waits for it. Its CPU time is made up: with each reading, it
    has an hour more."""
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
            values @ values
            done.release()

    thread, hours = threading.Thread(target=compute), itertools.count()
    thread.start()
    monkeypatch.setattr(
        step_clock, "_other_threads", lambda: [(thread.native_id, "ranker", next(hours) * 3600 * 10**9)]
    )
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
    thread.join()
    texts = [finding.message for finding in load(tmp_path).quality if finding.code == "threads-not-recorded"]
    assert len(texts) == (not everything)
    assert all("(ranker)" in text and "profile_all_threads=True" in text for text in texts)
