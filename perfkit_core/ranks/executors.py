"""Where ranks are reduced: in this process, in several, or on a cluster of Dask."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar

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
    there is none."""
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
    try:
        from distributed import Client
    except ImportError:
        raise UsageError("--scheduler needs Dask, which is not installed", "pip install 'perfkit[scale]'") from None
    try:
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UsageError(
            f"no Dask scheduler answers at {address} ({reason})", "'dask scheduler' prints its address"
        ) from None
    with client:
        yield client
