"""Compare ways to reduce a job of many ranks: ``python -m benchmarks.job_of_ranks [--ranks N] [--rounds N]``

Recordings of a real job of eight ranks are copied; each copy has its own clock and rank. Every rank is reduced
separately, and the results are merged. Four ways to do this are compared: in one process ("this process"), with two
threads, with two processes, and on a Dask cluster of two workers. All four ways must return equal tables. They
alternate, and the numbers are medians. Each way runs once before the measurement, so that all processes and workers are
started and their caches are warm, as on a permanent cluster.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

from benchmarks import console
from benchmarks.inputs import TRACES
from benchmarks.results import Section, Table, at_most, number
from benchmarks.rounds import run

REAL_JOB = TRACES / "torch" / "dlrm-8xv100"
DASK, SERIAL = "2 Dask workers", "this process"
MOST_OF_SERIAL = 0.65
MANY, MOST_OF_MANY = 1000, 0.6
"""With many ranks, the last tasks of the workers weigh less."""
_ONCE = (
    "import json, sys; from benchmarks.many_ranks import measure; print(json.dumps(measure(*map(int, sys.argv[1:]))))"
)


def section(ranks: int, rounds: int, say: Callable[[str], None]) -> Section:
    """Return the time of each way, and its ratio to the time in one process."""
    if not REAL_JOB.is_dir():
        raise RuntimeError(f"no real job at {REAL_JOB}; set PERFKIT_TRACES")
    say(f"{ranks} ranks, {rounds} rounds")
    seconds = run(["-c", _ONCE, str(ranks), str(rounds)])
    if isinstance(seconds, str):
        raise RuntimeError(seconds)
    parts = {name: _part(times, seconds[SERIAL]) for name, times in seconds.items()}
    rows = tuple(_row(name, statistics.median(times), parts[name], ranks) for name, times in seconds.items())
    table = Table(f"{ranks} ranks", ("", "s", "relative to this process", "ms per rank"), rows)
    most = MOST_OF_MANY if ranks >= MANY else MOST_OF_SERIAL
    check = at_most(f"{ranks} ranks on 2 Dask workers ÷ one process", most, parts.get(DASK), "")
    return Section("Many ranks", (__doc__ or "").split("\n\n")[1], (table,), (check,), seconds)


def _part(times: list[float], serial: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(times, serial, strict=True))


def _row(name: str, median: float, part: float, ranks: int) -> tuple[str, ...]:
    return name, number(median), number(part), number(1e3 * median / ranks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    console.show(section(options.ranks, options.rounds, console.progress))


if __name__ == "__main__":
    main()
