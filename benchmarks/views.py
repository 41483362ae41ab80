"""What does each view cost? ``python benchmarks/views.py SOURCE [SOURCE ...]`` prints medians of five, and ratios to
loading the sources."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from perfkit_core.loading import load
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.renderers import text
from perfkit_core.report.display import Display
from perfkit_core.report.summary import choose_views, summary_report

ROUNDS = 5


def seconds(call: Callable[[], Any]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main(sources: list[str]) -> None:
    """Loading first, then all views together as the command line shows them, then each view alone on a fresh trace."""
    trace = load(sources)  # and compiles what has to be compiled
    loading = statistics.median(seconds(lambda: load(sources)) for _ in range(ROUNDS))
    views = choose_views(["all"])

    def everything() -> None:
        fresh = replace(trace, _cache={})
        text.render(summary_report(fresh, views, ViewRequest(), Display(limit=20)))

    everything()
    whole = statistics.median(seconds(everything) for _ in range(ROUNDS))
    print(f"{len(trace)} events: loading {loading:.2f} s; all {len(views)} views {whole:.2f} s ({whole / loading:.2f})")
    for name, view in get_plugins().views().items():
        times = [_alone(view.table, replace(trace, _cache={})) for _ in range(ROUNDS)]
        print(f"{name:22} {statistics.median(times) * 1000:7.1f} ms")


def _alone(table: Callable[..., Any], trace: Any) -> float:
    return seconds(lambda: table(trace, ViewRequest()))


if __name__ == "__main__":
    main(sys.argv[1:])
