"""Reduces the ranks of a plan wherever an executor runs them, and collects the partials.

Written against ``concurrent.futures.Executor``: this process, a pool of processes, or a cluster.

How much free memory does a worker keep while it reduces ranks? Enough to use it again for the next array.

Dask starts its workers with ``MALLOC_TRIM_THRESHOLD_``: whatever is free goes back to the system at once, and each
array of more than 128 KB is asked for anew, page by page. That makes reducing a rank a fifth dearer.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Final

from perfkit_core.errors import PerfkitError, SourceError, UsageError
from perfkit_core.ranks.job import Failed, Job, Partial, RankFiles
from perfkit_core.ranks.plan import Plan
from perfkit_core.ranks.reduce import reduce_rank
from perfkit_core.system.paths import as_path, is_remote

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's ``mallopt`` (malloc.h)."""
_KEPT_BYTES: Final = 128 << 20
_LARGEST_BYTES: Final = 32 << 20
"""glibc takes no more for the second: larger pieces are the system's again as soon as they are free."""
_USUAL_LARGEST: Final = 128 << 10


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """While the block runs malloc keeps what is free; behind it the settings of the process hold again. Does nothing
    where no such setting was made, or another malloc than glibc's is at work."""
    told = os.environ.get("MALLOC_TRIM_THRESHOLD_", "")
    malloc = _glibc() if told.isdigit() else None
    if malloc is None:
        yield
        return
    malloc.mallopt(_MMAP_THRESHOLD, _LARGEST_BYTES)
    malloc.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
    try:
        yield
    finally:
        largest = os.environ.get("MALLOC_MMAP_THRESHOLD_", "")
        malloc.mallopt(_MMAP_THRESHOLD, int(largest) if largest.isdigit() else _USUAL_LARGEST)
        malloc.mallopt(_TRIM_THRESHOLD, int(told))
        malloc.malloc_trim(0)


def _glibc() -> Any:
    """The C library of this process, None where it is another one."""
    try:
        library = ctypes.CDLL(None)
        return library if library.mallopt and library.malloc_trim else None
    except (AttributeError, OSError, TypeError):
        return None


Report = Callable[[int], None]
Answer = tuple[Partial, ...] | Failed

TASK_BYTES: Final = 4 << 20
"""Small ranks are given away together, up to this size of their files: a cluster needs about 25 ms for each task."""


def run(
    executor: Executor, plan: Plan, job: Job, report: Report = lambda done: None
) -> tuple[list[Partial], dict[int, Failed]]:
    """The partials of all ranks, in the order of the plan, and those that could not be read, by their numbers in it.

    ``report`` is called with the number of ranks that are done. A rank that cannot be read is named by a SourceError,
    unless ``job.partial`` says to leave it out. Raises UsageError for a request that makes no sense.
    """
    futures: list[Future[list[Answer]]] = []
    try:
        done = 0
        for files in tasks(plan.ranks):
            futures.append(executor.submit(reduce_ranks, files, job))
            if futures[-1].done():  # of an executor that works at once
                done += _looked_at(futures[-1].result(), job)
                report(done)
        done = 0
        for future in as_completed(futures):
            done += _looked_at(future.result(), job)
            report(done)
    except BrokenProcessPool:
        raise UsageError(
            "a worker process ended while it read a rank", "was it out of memory? try fewer --workers"
        ) from None
    finally:
        for future in futures:
            future.cancel()
    answers = [answer for future in futures for answer in future.result()]
    partials = [partial for answer in answers if not isinstance(answer, Failed) for partial in answer]
    return partials, {number: answer for number, answer in enumerate(answers) if isinstance(answer, Failed)}


def tasks(ranks: Sequence[RankFiles]) -> list[list[RankFiles]]:
    """Ranks that follow one another, together as long as their files are small; those of a store one by one."""
    found: list[list[RankFiles]] = []
    room = 0
    for files in ranks:
        size = sum(map(_size, files.paths))
        if not found or size > room:
            found.append([])
            room = TASK_BYTES
        found[-1].append(files)
        room -= size
    return found


def reduce_ranks(ranks: Sequence[RankFiles], job: Job) -> list[Answer]:
    """:func:`reduce_rank` for some, up to one whose failure ends it all."""
    answers: list[Answer] = []
    with kept():
        for files in ranks:
            answers.append(reduce_rank(files, job))
            if _ends_it(answers[-1], job):
                break
    return answers


def _size(path: str) -> int:
    try:
        return TASK_BYTES if is_remote(as_path(path)) else Path(path).stat().st_size
    except OSError:
        return 0


def _looked_at(answers: Sequence[Answer], job: Job) -> int:
    """The number of ranks. Raises the error of one whose failure ends it all."""
    for answer in answers:
        if _ends_it(answer, job) and isinstance(answer, Failed):
            raise error(answer)
    return len(answers)


def _ends_it(answer: Answer, job: Job) -> bool:
    return isinstance(answer, Failed) and (answer.usage or not job.partial)


def error(failed: Failed) -> PerfkitError:
    """The error that a rank could not raise where it was read."""
    return (UsageError if failed.usage else SourceError)(failed.message, failed.hint)
