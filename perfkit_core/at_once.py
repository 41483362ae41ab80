"""How are several things done at once? In threads: numpy, Arrow and compiled loops work outside of Python's lock."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

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
    """``make`` of each item, in the order of the items, by ``count`` threads (:func:`threads`).

    No more than ``ahead`` wait to be taken, beside the one that is (None: all are begun at once). What ``make`` raises
    is raised in its turn. As the interpreter ends, when no thread can be started any more, they are made one by one.
    """
    if len(items) < 2:
        yield from map(make, items)
        return
    waiting: deque[Future[_Made]] = deque()
    pool = ThreadPoolExecutor(count or threads(), thread_name_prefix="perfkit-at-once")
    try:
        for item in items:
            waiting.append(_begun(pool, make, item))
            if ahead is not None and len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)  # what was not begun is not wanted any more


def both(one: Callable[[], _Made], other: Callable[[], _Other], rows: int) -> tuple[_Made, _Other]:
    """What two functions return, which go through so many rows; one after the other where a thread is not worth it."""
    if rows < WORTH_ROWS:
        return one(), other()
    with ThreadPoolExecutor(1, thread_name_prefix="perfkit-at-once") as pool:
        found = _begun(pool, lambda _: one(), None)
        beside = other()
        return found.result(), beside


def _begun(pool: ThreadPoolExecutor, make: Callable[[_Item], _Made], item: _Item) -> Future[_Made]:
    try:
        return pool.submit(make, item)
    except RuntimeError:  # the interpreter is ending
        done: Future[_Made] = Future()
        done.set_result(make(item))
        return done
