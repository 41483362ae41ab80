"""Work in parallel threads: numpy, Arrow and compiled loops release Python's lock."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")
_Other = TypeVar("_Other")

WORTH_ROWS: Final = 1 << 16
"""Rows from which starting a thread pays off."""
_MOST_THREADS: Final = 4
"""The work is bound by memory bandwidth; more threads only take cores from others."""


def threads() -> int:
    return min(os.cpu_count() or 1, _MOST_THREADS)


def in_order(
    make: Callable[[_Item], _Made], items: Collection[_Item], count: int | None = None, ahead: int | None = None
) -> Iterator[_Made]:
    """Yield ``make`` of each item in order, made by ``count`` threads (default :func:`threads`), the calling one
    included. At most ``ahead`` results wait beside the next one (None: no limit). Errors of ``make`` are raised in
    their turn. During the interpreter's shutdown no thread can be started, so the calling thread makes all results."""
    count = min(count or threads(), len(items))
    if count < 2:
        for item in items:
            yield make(item)
        return
    waiting: deque[tuple[_Item, Future[_Made]]] = deque()
    pool = ThreadPoolExecutor(count - 1, thread_name_prefix="perfkit-parallel")
    try:
        for item in items:
            # Not the pool's future, as the pool keeps tasks that it cannot start: the thread that claims it runs it.
            future: Future[_Made] = Future()
            with contextlib.suppress(RuntimeError):  # no thread can be started
                pool.submit(_claimed, future, make, item)
            waiting.append((item, future))
            del future  # a result must not outlive its turn
            if ahead is not None and len(waiting) > ahead:
                yield _first(waiting, make)
        while waiting:
            yield _first(waiting, make)
    finally:
        pool.shutdown(cancel_futures=True)


def both(one: Callable[[], _Made], other: Callable[[], _Other], rows: int) -> tuple[_Made, _Other]:
    """Return the results of two functions that process ``rows`` rows; in parallel from :data:`WORTH_ROWS` on."""
    jobs: tuple[Callable[[], Any], ...] = (one, other)
    first, second = in_order(lambda job: job(), jobs, threads() if rows >= WORTH_ROWS else 1)
    return first, second


def _claimed(future: Future[_Made], make: Callable[[_Item], _Made], item: _Item) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(make(item))
    except BaseException as error:
        future.set_exception(error)
        if not isinstance(error, Exception):
            raise


def _first(waiting: deque[tuple[_Item, Future[_Made]]], make: Callable[[_Item], _Made]) -> _Made:
    """Return the first result. Until it is ready, the calling thread makes results that no other has started."""
    for place, (item, future) in enumerate(waiting):
        if waiting[0][1].done():
            break
        if future.cancel():  # not started
            waiting[place] = item, Future()
            _claimed(waiting[place][1], make, item)
    future = waiting.popleft()[1]
    try:
        return future.result()
    finally:
        del future  # the traceback of an error would keep the result alive
