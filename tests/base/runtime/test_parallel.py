"""Tests of work in threads: results are in order, errors are raised in order, and no unwanted work begins."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from perfkit_core.base.runtime import parallel


def test_results_come_in_the_order_of_the_items() -> None:
    second_done = threading.Event()

    def make(item: int) -> int:
        if item == 0:
            assert second_done.wait(60)  # only another thread can end this wait
        if item == 1:
            second_done.set()
        return item * item

    assert list(parallel.in_order(make, range(5), count=2)) == [0, 1, 4, 9, 16]


def test_only_as_many_results_as_may_wait_are_begun_ahead() -> None:
    begun: list[int] = []
    all_begun, go_on = threading.Event(), threading.Event()

    def make(item: int) -> int:
        begun.append(item)
        if len(begun) == 3:
            all_begun.set()
        assert item == 0 or go_on.wait(60)
        return item

    results = parallel.in_order(make, range(100), count=3, ahead=2)
    first = threading.Thread(target=results.__next__)
    first.start()
    assert all_begun.wait(60)  # two results besides the first
    go_on.set()
    first.join(60)
    assert sorted(begun) == [0, 1, 2]
    results.close()
    assert sorted(begun) == [0, 1, 2]


def test_no_work_begins_after_the_consumer_stops() -> None:
    begun: list[int] = []
    go_on = threading.Event()

    def make(item: int) -> int:
        begun.append(item)
        assert item == 0 or go_on.wait(60)
        return item

    results = parallel.in_order(make, range(50), count=2)
    assert next(results) == 0  # the other thread makes item 1 or has not begun
    threading.Timer(1, go_on.set).start()
    results.close()
    assert len(begun) <= 2


def test_each_result_is_made_once_if_threads_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool keeps tasks for which it could not start a thread, and gives them to the thread that it has."""
    start, started = threading.Thread.start, []

    def refusing(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refusing)
    left = {name: name.upper() for name in "abcdefgh"}
    assert list(parallel.in_order(left.pop, list(left), count=4)) == list("ABCDEFGH")
    assert len(started) == 1


def test_an_error_is_raised_in_order_and_ends_the_others() -> None:
    def make(item: int) -> int:
        if item == 3:
            raise ValueError("item 3")
        return item

    results = parallel.in_order(make, range(1000), count=2, ahead=2)
    assert [next(results), next(results), next(results)] == [0, 1, 2]
    with pytest.raises(ValueError, match="item 3"):
        next(results)
    assert not [thread.name for thread in threading.enumerate() if "perfkit-parallel" in thread.name]


@pytest.mark.parametrize(("items", "count"), [(1, 4), (3, 1)])
def test_one_item_or_one_core_needs_no_other_thread(items: int, count: int) -> None:
    here = threading.get_ident()
    assert set(parallel.in_order(lambda _: threading.get_ident(), range(items), count)) == {here}


def test_the_calling_thread_makes_what_no_other_has_begun() -> None:
    here, begun, made = threading.get_ident(), threading.Event(), threading.Semaphore(0)

    def make(item: int) -> int:
        if threading.get_ident() == here:
            assert begun.wait(60)
            made.release()
        else:
            begun.set()
            assert all(
                made.acquire(timeout=60) for _ in range(5)
            )  # this item takes until the calling thread has made all others
        return threading.get_ident()

    makers = list(parallel.in_order(make, range(6), count=2))
    assert sorted(maker == here for maker in makers) == [False] + [True] * 5


def test_two_functions_run_in_parallel_if_there_is_enough_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "threads", lambda: 2)
    met = threading.Barrier(2)
    parallel.both(lambda: met.wait(60), lambda: met.wait(60), parallel.WORTH_ROWS)
    found = parallel.both(threading.get_ident, threading.get_ident, parallel.WORTH_ROWS - 1)
    assert found == (threading.get_ident(),) * 2


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_of_one_of_two_functions_is_raised(failing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "threads", lambda: 2)

    def fail() -> None:
        raise ValueError("failed")

    jobs = [lambda: None, lambda: None]
    jobs[failing] = fail
    with pytest.raises(ValueError, match="failed"):
        parallel.both(jobs[0], jobs[1], parallel.WORTH_ROWS)


def test_results_are_made_one_by_one_at_interpreter_exit() -> None:
    script = """
import atexit
from perfkit_core.base.runtime import parallel as at_once
at_once.threads = lambda: 2
atexit.register(lambda: print(list(at_once.in_order(lambda item: item + 1, range(3))), at_once.both(int, str, 1 << 20)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=True)
    assert (done.stdout.strip(), done.stderr) == ("[1, 2, 3] (0, '')", "")
