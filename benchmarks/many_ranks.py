"""Measure the time per rank for a job of many ranks, with one process and with several workers.

``python -m benchmarks.many_ranks [RANKS] [ROUNDS] [VIEW,VIEW,…]`` writes copies of real ranks with different clocks and
numbers. It then reduces and merges the ranks in four ways: in one process, with two threads, with two processes, and on
a Dask cluster of two workers. The ways alternate. The program prints the median of each way and its ratio to one
process. The workers have already imported all modules, as on a permanent cluster.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pandas as pd

from benchmarks.inputs import TRACES
from perfkit_core.output.report.summary import choose_views
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.ranks.plan import Job, Plan, plan
from perfkit_core.ranks.profile import Computed, merge
from perfkit_core.ranks.run import Serial, executor, run
from tests.support.rank_files import write_ranks

WORKERS = 2
DEFAULT_VIEWS = "partition,model,operators"


def main(count: int = 64, rounds: int = 5, views: str = DEFAULT_VIEWS) -> None:
    """Measure and print the results."""
    report(measure(count, rounds, views), count)


def measure(count: int, rounds: int, views: str = DEFAULT_VIEWS) -> dict[str, list[float]]:
    """Return the seconds of each round per executor. Raises AssertionError if the executors return different tables."""
    real = sorted((TRACES / "torch" / "dlrm-8xv100").glob("rank*.json"))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        write_ranks(real, count, Path(folder))
        planned = plan([folder])
        names = tuple(view.name for view in choose_views(views.split(",")))
        running = {name: stack.enter_context(make()) for name, make in EXECUTORS.items()}
        tables = {name: once(one, planned, names).tables for name, one in running.items()}  # also warms up the executor
        check_equal(tables)
        seconds: dict[str, list[float]] = {name: [] for name in running}
        for _ in range(rounds):
            for name, one in running.items():
                start = time.perf_counter()
                once(one, planned, names)
                seconds[name].append(time.perf_counter() - start)
    return seconds


def once(running: Executor, planned: Plan, views: tuple[str, ...]) -> Computed:
    """Return the tables of the views over all ranks."""
    job = Job(views, ViewRequest())
    partials, _ = run(running, planned, job)
    return merge(partials, choose_views(views), job)


def check_equal(tables: dict[str, dict[str, pd.DataFrame]]) -> None:
    """Raise AssertionError unless all executors return the same tables."""
    first, *others = tables.values()
    for other in others:
        for name, table in first.items():
            pd.testing.assert_frame_equal(table, other[name], check_exact=True)


def report(seconds: dict[str, list[float]], count: int) -> None:
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    serial = medians["this process"]
    for name, median in medians.items():
        print(
            f"{name:28} {median:7.2f} s  {median / serial:5.2f} × this process {1000 * median / count:6.1f} ms per rank"
        )


@contextmanager
def dask_cluster() -> Iterator[Executor]:
    """Yield an executor with two Dask workers in separate processes with one thread each."""
    from distributed import LocalCluster

    with (
        tempfile.TemporaryDirectory() as scratch,
        LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, dashboard_address=":0", local_directory=scratch
        ) as cluster,
        executor(scheduler=cluster.scheduler_address) as client,
    ):
        yield client


@contextmanager
def serial() -> Iterator[Executor]:
    """Yield an executor that uses the current process."""
    yield Serial()


@contextmanager
def threads() -> Iterator[Executor]:
    """Yield an executor that uses threads of the current process."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(WORKERS) as pool:
        yield pool


EXECUTORS: dict[str, Callable[[], object]] = {
    "this process": serial,
    "2 threads": threads,
    "2 processes, already started": lambda: executor(WORKERS),
    "2 Dask workers": dask_cluster,
}

if __name__ == "__main__":
    main(*(kind(text) for kind, text in zip((int, int, str), sys.argv[1:], strict=False)))
