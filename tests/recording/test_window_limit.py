"""A window is limited by its events and by the memory that is free, and is checked while a step runs."""

from __future__ import annotations

import threading
import time

import pytest

from perfkit_core.base.system import machine
from perfkit_core.recording.window_limit import Checks, EventEstimate


def test_what_is_counted_goes_before_what_is_guessed() -> None:
    assert EventEstimate(1, 1, 100, lambda: 7).events() == 7


def test_a_guess_is_limited_by_time_and_by_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seconds have room for 800,000 events, and 4 MB for 40,000 of 100 bytes."""
    monkeypatch.setattr(machine, "resident", lambda: 5_000_000)
    now = time.perf_counter()
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    assert EventEstimate(100, 1, 100, int, 1_000_000, now - 2).events() == 40_000
    assert EventEstimate(1, 1, 100, int, 1_000_000, now - 2).events() == 800_000
    estimate = EventEstimate(100, 1, 100, int, 6_000_000, now - 2)
    assert estimate.events() == 0
    monkeypatch.setattr(machine, "resident", lambda: 5_500_000)
    assert estimate.events() == 5_000  # the script has freed 1 MB before


@pytest.mark.parametrize(
    ("events", "more", "free", "says"),
    [
        (100, 0, 1250.0, None),
        (101, 0, 1000.0, "it would have more than 100 events"),
        (60, 41, 1000.0, "it would have more than 100 events"),
        (41, 0, 500.0, "its events would need more memory than is free"),
        (40, 0, 500.0, None),
        (60, 0, None, None),
    ],
)
def test_a_window_is_full(
    monkeypatch: pytest.MonkeyPatch, events: int, more: int, free: float | None, says: str | None
) -> None:
    """Each event needs 5 MB when the profiler stops, which may need 40% of the free memory, here in MB."""
    monkeypatch.setattr(machine, "free", lambda: free and free * 1e6)
    reason = EventEstimate(1, 5_000_000, 100, lambda: events).reason(100, more)
    assert (reason and str(reason)) == says


def test_memory_must_suffice_for_the_fastest_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one second, a usual program makes 400,000 events, which fit, but some make 1,000,000, which need 3 GB."""
    monkeypatch.setattr(machine, "resident", lambda: 1 << 40)
    monkeypatch.setattr(machine, "free", lambda: 4e9)
    now = time.perf_counter()
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    estimate = EventEstimate(1, 3000, 500_000, int, 0, now - 1)
    assert estimate.events() == 400_000
    assert str(estimate.reason(500_000)) == "its events would need more memory than is free"
    assert "more than 300,000 events" in str(estimate.reason(300_000))


def test_the_free_memory_is_not_asked_for_each_short_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer takes longer than many steps. 50,000 events of torch need 125 MB."""
    monkeypatch.setattr(machine, "free", lambda: 1 / 0)
    assert EventEstimate(400, 2500, 10**6, lambda: 50_000).reason(10**6) is None


class Counter:
    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def check(self) -> None:
        self.threads.append(threading.current_thread())


def wait_for(condition: object, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:  # type: ignore[operator]
        sum(range(100))


def test_checks_run_in_the_main_thread_between_two_instructions() -> None:
    counter = Counter()
    checks = Checks(counter.check)
    wait_for(lambda: len(counter.threads) >= 2)
    checks.end()
    assert {*counter.threads} == {threading.main_thread()}
    assert len(counter.threads) >= 2


def test_no_check_runs_after_the_end_or_for_another_thread() -> None:
    ended, elsewhere, still = Counter(), Counter(), Counter()
    checks = Checks(ended.check)
    checks.end()
    ended.threads.clear()  # on a busy machine, a check may have run before the end
    thread = threading.Thread(target=lambda: kept.append(Checks(elsewhere.check)))
    kept: list[Checks] = []
    thread.start()
    thread.join()
    kept.append(Checks(still.check))
    wait_for(lambda: len(still.threads) >= 2)
    kept[-1].end()
    assert (ended.threads, elsewhere.threads) == ([], [])
