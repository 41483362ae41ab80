"""Where ranks are reduced: in this process, in several, or on a cluster of Dask."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar, cast

from perfkit_core.errors import UsageError

P = ParamSpec("P")
T = TypeVar("T")

CONNECT_SECONDS: Final = 10


class Serial(Executor):
    """Works in this thread, at once."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@contextlib.contextmanager
def executor(workers: int = 1, scheduler: str | None = None) -> Iterator[Executor]:
    """This process, ``workers`` processes, or the cluster of the Dask scheduler at an address. Raises UsageError where
    there is none, where it has no workers, and where it fails on the way."""
    if scheduler is not None:
        with _cluster(scheduler) as client:
            yield client.get_executor()
    elif workers > 1:
        # spawned, as a copy of a process whose libraries run threads may hang
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            yield pool
    else:
        yield Serial()


@contextlib.contextmanager
def _cluster(address: str) -> Iterator[Any]:
    client = _within(CONNECT_SECONDS + 2, lambda: _connected(address), address)
    with client:
        if not _within(CONNECT_SECONDS + 2, lambda: _has_workers(client), address):
            raise UsageError(
                f"the Dask scheduler at {address} has no workers", f"start one with: dask worker {address}"
            )
        try:
            yield client
        except _failures() as error:
            raise UsageError(
                f"the Dask cluster at {address} failed ({_told(error)})",
                "its log tells more; every worker needs perfkit and must see the files",
            ) from None


def _connected(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError:
        raise UsageError("--scheduler needs Dask, which is not installed", "pip install 'perfkit[scale]'") from None
    return Client(address, timeout=CONNECT_SECONDS, set_as_default=False)


def _has_workers(client: Any) -> bool:
    """Waits for workers that are about to start."""
    try:
        client.wait_for_workers(1, timeout=CONNECT_SECONDS)
    except TimeoutError:
        return False
    return True


def _failures() -> tuple[type[Exception], ...]:
    """What a cluster may end with."""
    from distributed import KilledWorker

    return OSError, CancelledError, ImportError, cast("type[Exception]", KilledWorker)


def _within(seconds: float, work: Callable[[], T], address: str) -> T:
    """What the work returns. Whatever it raises, and taking longer, is a UsageError: any service may answer there,
    and Dask's own limits do not hold for what answers in another protocol."""
    future: Future[T] = Future()
    # a daemon: what hangs must not keep the process from ending
    threading.Thread(target=_settle, args=(future, work), daemon=True).start()
    try:
        return future.result(seconds)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"no Dask scheduler answers at {address} ({_told(error)})", "'dask scheduler' prints its address"
        ) from None


def _settle(future: Future[T], work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except Exception as error:
        future.set_exception(error)
    except BaseException as error:  # a connection that was cancelled
        future.set_exception(RuntimeError(type(error).__name__))


def _told(error: Exception) -> str:
    """One line, without what an unknown protocol made of it."""
    if isinstance(error, MemoryError | ValueError | UnicodeError | EOFError):
        return "what answers there does not speak its protocol"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return " ".join(str(error).split()) or type(error).__name__
