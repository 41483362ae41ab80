"""How are several things done at once? In threads: numpy, Arrow and compiled loops work outside of Python's lock."""

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
"""From so many rows on a thread is worth it."""
_MOST_THREADS: Final = 4
"""Memory is what they wait for; more only take cores from others."""


def threads() -> int:
    """How many are worth it on this machine."""
    return min(os.cpu_count() or 1, _MOST_THREADS)


def in_order(
    make: Callable[[_Item], _Made], items: Collection[_Item], count: int | None = None, ahead: int | None = None
) -> Iterator[_Made]:
    """``make`` of each item, in the order of the items, by ``count`` threads (:func:`threads`), of which this is one.

    No more than ``ahead`` wait to be taken, beside the one that is (None: all are begun as soon as can be). What
    ``make`` raises is raised in its turn. As the interpreter ends no other thread can be started: this one makes all.
    """
    count = min(count or threads(), len(items))
    if count < 2:
        for item in items:
            yield make(item)
        return
    waiting: deque[_Task[_Item, _Made]] = deque()
    pool = ThreadPoolExecutor(count - 1, thread_name_prefix="perfkit-at-once")
    try:
        for item in items:
            waiting.append((item, _handed(pool, make, item)))
            if ahead is not None and len(waiting) > ahead:
                yield _first(waiting, make)
        while waiting:
            yield _first(waiting, make)
    finally:
        pool.shutdown(cancel_futures=True)  # what was not begun is not wanted any more


def both(one: Callable[[], _Made], other: Callable[[], _Other], rows: int) -> tuple[_Made, _Other]:
    """What two functions return, which go through so many rows; one after the other where a thread is not worth it."""
    jobs: tuple[Callable[[], Any], ...] = (one, other)
    found, beside = in_order(lambda job: job(), jobs, threads() if rows >= WORTH_ROWS else 1)
    return found, beside


_Task = tuple[_Item, Future[_Made]]


def _handed(pool: ThreadPoolExecutor, make: Callable[[_Item], _Made], item: _Item) -> Future[_Made]:
    """Whoever claims the result first makes it, and nobody else: the pool keeps what it could start no thread for."""
    future: Future[_Made] = Future()
    with contextlib.suppress(RuntimeError):  # no thread can be started (any more)
        pool.submit(_claimed, future, make, item)
    return future


def _claimed(future: Future[_Made], make: Callable[[_Item], _Made], item: _Item) -> None:
    """Makes what nobody else has claimed."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(make(item))
    except BaseException as error:
        future.set_exception(error)
        if not isinstance(error, Exception):
            raise


def _first(waiting: deque[_Task[_Item, _Made]], make: Callable[[_Item], _Made]) -> _Made:
    """The first result. Until it is there this thread makes what no other has begun."""
    for place, (item, future) in enumerate(waiting):
        if waiting[0][1].done():
            break
        if future.cancel():  # not begun
            waiting[place] = item, Future()
            _claimed(waiting[place][1], make, item)
    future = waiting.popleft()[1]
    try:
        return future.result()
    finally:
        del future  # an error would keep what it was made of alive
