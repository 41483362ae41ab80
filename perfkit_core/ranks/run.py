"""Reduction of the ranks of a plan: in this process, in several processes, or on a Dask cluster."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from perfkit_core.base.system.outside_text import whole_number
from perfkit_core.base.system.paths import as_path, is_remote
from perfkit_core.errors import PerfkitError, SourceError, UsageError
from perfkit_core.ranks.plan import Failed, Job, Partial, Plan, RankFiles
from perfkit_core.ranks.reduce import reduce_rank

P = ParamSpec("P")
T = TypeVar("T")
Answer = tuple[Partial, ...] | Failed

CONNECT_SECONDS: Final = 10
TASK_BYTES: Final = 4 << 20
"""Ranks with small files are combined into tasks of at most this size, because a cluster needs about 25 ms per task."""
_RANK_BYTES: Final = TASK_BYTES // 32
"""Each rank counts as at least this many bytes, because even a rank without events takes about 20 ms."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's ``mallopt`` (malloc.h)."""
_TRIM_BYTES: Final = 128 << 20
_MMAP_BYTES: Final = 32 << 20
"""Maximum of M_MMAP_THRESHOLD. Larger blocks are returned to the system as soon as they are freed."""
_DEFAULT_MMAP_BYTES: Final = 128 << 10
_LARGEST_INT: Final = 2**31 - 1


class Serial(Executor):
    """An executor that runs work in the calling thread, during ``submit``."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@contextlib.contextmanager
def executor(workers: int = 1, scheduler: str | None = None) -> Iterator[Executor]:
    """Yield an executor: this process, ``workers`` processes, or the cluster of the Dask scheduler at the address
    ``scheduler``. Raises UsageError if this scheduler does not answer or has no workers, or if the cluster fails."""
    if scheduler is None and workers > 1:
        # spawn instead of fork: a forked process may hang if libraries run threads
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            yield pool
        return
    if scheduler is None:
        yield Serial()
        return
    try:
        from distributed import Client, KilledWorker
    except ImportError:
        raise UsageError("--scheduler needs Dask, which is not installed", "pip install 'perfkit[scale]'") from None
    client = _connected(lambda: Client(scheduler, timeout=CONNECT_SECONDS, set_as_default=False), scheduler)

    def has_workers() -> bool:
        try:
            client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except TimeoutError:
            return False
        return True

    with client:
        if not _connected(has_workers, scheduler):
            hint = f"start one with: dask worker {scheduler}"
            raise UsageError(f"the Dask scheduler at {scheduler} has no workers", hint)
        try:
            yield client.get_executor()
        except (OSError, CancelledError, ImportError, KilledWorker) as error:
            raise UsageError(
                f"the Dask cluster at {scheduler} failed ({_in_one_line(error)})",
                "see its log; every worker needs perfkit and access to the files",
            ) from None


def _connected(work: Callable[[], T], address: str) -> T:
    """Return the result of ``work``. Errors and timeouts become UsageError. The work runs in a thread with a time
    limit, because Dask's own time limits do not apply if a service with another protocol answers."""
    future: Future[T] = Future()

    def settle() -> None:
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)
        except BaseException as error:  # the connection was cancelled
            future.set_exception(RuntimeError(type(error).__name__))

    # a daemon, so that the process can end while the thread hangs
    threading.Thread(target=settle, daemon=True).start()
    try:
        return future.result(2 * CONNECT_SECONDS)  # above the limits of the work itself
    except Exception as error:
        raise UsageError(
            f"no Dask scheduler answers at {address} ({_in_one_line(error)})", "'dask scheduler' prints its address"
        ) from None


def _in_one_line(error: Exception) -> str:
    if isinstance(error, MemoryError | ValueError | UnicodeError | EOFError):
        return "the server there speaks another protocol"
    if isinstance(error, TimeoutError):
        return "no answer within the time limit"
    return " ".join(str(error).split()) or type(error).__name__


def run(
    executor: Executor, plan: Plan, job: Job, report: Callable[[int], None] = lambda done: None
) -> tuple[list[Partial], dict[int, Failed]]:
    """Return the :class:`Partial` of each readable rank, in plan order, and a dict: position in the plan → failure.

    If ``job.reading.partial`` allows damaged files, an unreadable rank becomes a failure in the dict. Otherwise it
    raises SourceError. An invalid request raises UsageError. ``report`` is called with the number of finished ranks."""
    futures: list[Future[list[Answer]]] = []

    def ranks_in(answers: list[Answer]) -> int:
        for answer in answers:
            if isinstance(answer, Failed) and _aborts(answer, job):
                raise error(answer)
        return len(answers)

    try:
        done = 0
        for files in tasks(plan.ranks):
            futures.append(executor.submit(reduce_ranks, files, job))
            if futures[-1].done():  # the executor runs tasks during submit
                done += ranks_in(futures[-1].result())
                report(done)
        done = 0
        for future in as_completed(futures):
            done += ranks_in(future.result())
            report(done)
    except BrokenProcessPool:
        raise UsageError(
            "a worker process ended while reading a rank", "if it ran out of memory, use fewer --workers"
        ) from None
    finally:
        for future in futures:
            future.cancel()
    answers = [answer for future in futures for answer in future.result()]
    partials = [partial for answer in answers if not isinstance(answer, Failed) for partial in answer]
    return partials, {number: answer for number, answer in enumerate(answers) if isinstance(answer, Failed)}


def tasks(ranks: Sequence[RankFiles]) -> list[list[RankFiles]]:
    """Group consecutive ranks with small files into tasks. A rank in an object store is a task by itself."""
    groups: list[list[RankFiles]] = []
    room = 0
    for files in ranks:
        size = 0
        for path in files.paths:
            with contextlib.suppress(OSError):
                size += TASK_BYTES if is_remote(as_path(path)) else Path(path).stat().st_size
        size = max(size, _RANK_BYTES)
        if not groups or size > room:
            groups.append([])
            room = TASK_BYTES
        groups[-1].append(files)
        room -= size
    return groups


def reduce_ranks(ranks: Sequence[RankFiles], job: Job) -> list[Answer]:
    """Reduce several ranks. Stop at the first failure that makes the whole command fail."""
    answers: list[Answer] = []
    with keeping_freed_memory():
        for files in ranks:
            answer = reduce_rank(files, job)
            answers.append(answer)
            if isinstance(answer, Failed) and _aborts(answer, job):
                break
    return answers


def _aborts(failed: Failed, job: Job) -> bool:
    return failed.usage or not job.reading.partial


def error(failed: Failed) -> PerfkitError:
    return (UsageError if failed.usage else SourceError)(failed.message, failed.hint)


@contextlib.contextmanager
def keeping_freed_memory() -> Iterator[None]:
    """Let malloc keep freed memory while the ``with`` block runs, then restore the settings of the process.

    Dask sets the variable ``MALLOC_TRIM_THRESHOLD_`` for its workers. glibc then returns freed memory to the system
    immediately, and maps each array above 128 KB anew. This makes a reduction about 20% slower. Without the variable,
    or with another malloc, the settings are not changed."""
    setting = whole_number(os.environ.get("MALLOC_TRIM_THRESHOLD_", ""))
    malloc: Any = None
    if setting is not None:
        with contextlib.suppress(AttributeError, OSError, TypeError):
            library = ctypes.CDLL(None)
            malloc = library if library.mallopt and library.malloc_trim else None
    if malloc is None or setting is None:
        yield
        return
    malloc.mallopt(_MMAP_THRESHOLD, _MMAP_BYTES)
    malloc.mallopt(_TRIM_THRESHOLD, _TRIM_BYTES)
    try:
        yield
    finally:
        largest = whole_number(os.environ.get("MALLOC_MMAP_THRESHOLD_", ""))
        malloc.mallopt(_MMAP_THRESHOLD, min(_DEFAULT_MMAP_BYTES if largest is None else largest, _LARGEST_INT))
        malloc.mallopt(_TRIM_THRESHOLD, min(setting, _LARGEST_INT))
        malloc.malloc_trim(0)
