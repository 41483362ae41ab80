"""Work in parallel threads. This is faster because numpy, Arrow and compiled loops release Python's lock."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Other = TypeVar("_Other")

WORTH_ROWS: Final = 1 << 16
"""Smallest number of rows for which starting a thread pays off."""
_MAX_THREADS: Final = 4
"""More threads would not be faster, because the work is bound by memory bandwidth."""


def threads() -> int:
    return min(os.cpu_count() or 1, _MAX_THREADS)


def in_order(
    make: Callable[[_Item], _Result], items: Collection[_Item], count: int | None = None, ahead: int | None = None
) -> Iterator[_Result]:
    """Yield ``make(item)`` for each item, in order. An error of ``make`` is raised when its result is due.

    - ``count``: number of threads, including the calling thread. The default is :func:`threads`.
    - ``ahead``: maximum number of results that are made in advance; None means no limit.

    If no thread can be started, as during the interpreter's shutdown, the calling thread makes all results."""
    count = min(count or threads(), len(items))
    if count < 2:
        for item in items:
            yield make(item)
        return
    waiting: deque[tuple[_Item, Future[_Result]]] = deque()
    pool = ThreadPoolExecutor(count - 1, thread_name_prefix="perfkit-parallel")
    try:
        for item in items:
            # The first thread that claims this future runs the task. The pool's own future is not always available:
            # if no thread can be started, pool.submit raises, but the pool keeps the task.
            future: Future[_Result] = Future()
            with contextlib.suppress(RuntimeError):  # no thread can be started
                pool.submit(_run_if_unclaimed, future, make, item)
            waiting.append((item, future))
            del future  # otherwise this variable would keep the result alive after its use
            if ahead is not None and len(waiting) > ahead:
                yield _first(waiting, make)
        while waiting:
            yield _first(waiting, make)
    finally:
        pool.shutdown(cancel_futures=True)


def both(task: Callable[[], _Result], other: Callable[[], _Other], rows: int) -> tuple[_Result, _Other]:
    """Return the results of two functions that process ``rows`` rows, in parallel if there are at least WORTH_ROWS."""
    jobs: tuple[Callable[[], Any], ...] = (task, other)
    first, second = in_order(lambda job: job(), jobs, threads() if rows >= WORTH_ROWS else 1)
    return first, second


def _run_if_unclaimed(future: Future[_Result], make: Callable[[_Item], _Result], item: _Item) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(make(item))
    except BaseException as error:
        future.set_exception(error)
        if not isinstance(error, Exception):
            raise


def _first(waiting: deque[tuple[_Item, Future[_Result]]], make: Callable[[_Item], _Result]) -> _Result:
    """Remove and return the first result. While it is not ready, run tasks that no other thread has begun."""
    for position, (item, future) in enumerate(waiting):
        if waiting[0][1].done():
            break
        if future.cancel():  # not started
            waiting[position] = item, Future()
            _run_if_unclaimed(waiting[position][1], make, item)
    future = waiting.popleft()[1]
    try:
        return future.result()
    finally:
        del future  # the traceback of an error would keep the result alive
