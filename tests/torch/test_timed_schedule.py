"""What a recording of torch says about processors and about threads without events."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import pytest

import perfkit_torch
from perfkit_core.api import summarize
from perfkit_core.readers.load import load
from perfkit_core.recording import step_clock
from perfkit_torch.on_trace_ready import _unrecorded_threads
from tests.support.events import host
from tests.support.events import trace as made

torch = pytest.importorskip("torch")


def test_the_cpu_utilisation_is_stored_as_by_paddle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is read where the recorded steps begin and end. Between two readings, the process uses 150 of 100 ns,
    and 3 of 4 ticks of the processors are busy."""
    readings = itertools.count()

    def read(processors: Any) -> None:
        number = next(readings)
        processors._times, processors._threads = (100 * number, 150 * number, 3 * number, 4 * number), {}

    monkeypatch.setattr(step_clock._Processors, "__init__", read)
    handler = perfkit_torch.trace_handler(tmp_path)
    schedule = perfkit_torch.schedule(wait=3, warmup=1, active=4, repeat=1)
    with torch.profiler.profile(schedule=schedule, on_trace_ready=handler) as profiler:
        for _ in range(20):
            torch.ones(2) + 1
            profiler.step()
    trace = load(tmp_path)
    assert next(readings) == 2
    assert trace.meta.cpu_utilisation == {"process": 1.5, "system": 0.75}
    found = summarize(trace, "device").set_index("device")["utilisation_ratio"]
    assert found.to_dict() == {"cpu (process)": 1.5, "cpu (system)": 0.75}


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
