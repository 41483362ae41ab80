"""Reduces the ranks of a plan wherever an executor runs them, and collects the partials.

Written against ``concurrent.futures.Executor``: this process, a pool of processes, or a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Final

from perfkit_core.errors import PerfkitError, SourceError, UsageError
from perfkit_core.paths import as_path, is_remote
from perfkit_core.ranks import heap
from perfkit_core.ranks.job import Failed, Job, Partial, RankFiles
from perfkit_core.ranks.plan import Plan
from perfkit_core.ranks.reduce import reduce_rank

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
    with heap.kept():
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
