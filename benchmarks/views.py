"""What does each view cost? ``python benchmarks/views.py SOURCE [SOURCE ...] [--events N] [--rounds N] [--view NAME]``

Prints what each view takes alone on a fresh trace and after all views before it (what views share is computed once),
medians of the rounds, the total as a part of loading, and the peak memory. With ``--events`` the events of the sources
are repeated in memory, one copy after the other in time, until there are N: one long recording of one rank.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.algorithms.arrays import NO_ROW
from perfkit_core.model import schema
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.readers.load import load

NUMBERED = ("correlation", "sequence", "step")
"""Columns whose numbers tell one copy from the next."""
REFERENCES = ("parent", "launched_by")


def repeated(trace: Trace, count: int) -> Trace:
    """The first ``count`` events of copies of a trace, each later by the extent of the trace, with its own
    correlations, sequence numbers and steps. Distinct texts stay as few as they are."""
    shifts = {name: int(trace.ints(name).max()) + 1 for name in NUMBERED} | dict.fromkeys(REFERENCES, len(trace))
    shifts["start_ns"] = int(trace.end_ns.max() - trace.ints("start_ns").min()) + 1
    events = trace.events.unify_dictionaries().combine_chunks()
    copies = -(-count // len(trace))
    columns = {name: _column(events[name], shifts.get(name, 0), copies).slice(0, count) for name in schema.COLUMN_NAMES}
    for name in REFERENCES:  # what the cut leaves without its other end
        columns[name] = pc.if_else(pc.less(columns[name], count), columns[name], NO_ROW)
    table = pa.table(columns, schema=events.schema)
    return Trace(table, trace.meta, trace.quality)


def _column(values: pa.ChunkedArray, shift: int, copies: int) -> pa.ChunkedArray:
    chunks = [chunk for copy in range(copies) for chunk in _later(values, copy * shift).chunks]
    if pa.types.is_string(values.type):  # beyond 2 GiB it cannot be one chunk
        return pa.chunked_array(chunks, values.type)
    return pa.chunked_array([pa.concat_arrays(chunks)], values.type)


def _later(values: pa.ChunkedArray, shift: int) -> pa.ChunkedArray:
    """Unknown and no row stay as they are."""
    return pc.if_else(pc.less(values, 0), values, pc.add(values, shift)) if shift else values


def seconds(call: Callable[[], Any]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def alone(trace: Trace, view: View) -> float:
    """Seconds of one view on a trace of which nothing was computed before."""
    fresh = replace(trace, _cache={})
    return seconds(lambda: view.table(fresh, ViewRequest()))


def one_after_the_other(trace: Trace, views: Sequence[View]) -> list[float]:
    """Seconds of each view, on one trace."""
    fresh = replace(trace, _cache={})
    return [seconds(lambda view=view: view.table(fresh, ViewRequest())) for view in views]  # type: ignore[misc]


def peak_mb() -> int:
    """Most memory that this process held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    """Loads (which compiles what has to be compiled), repeats, and measures."""
    options = _options()
    views = [view for name, view in get_plugins().views().items() if not options.view or name in options.view]
    one_after_the_other(load(options.sources), views)
    loading = statistics.median(seconds(lambda: load(options.sources)) for _ in range(options.rounds))
    small = load(options.sources)
    trace = repeated(small, options.events) if options.events else small
    loading *= len(trace) / len(small)
    held = peak_mb()
    shared = [one_after_the_other(trace, views) for _ in range(options.rounds)]
    after = [statistics.median(times) for times in zip(*shared, strict=True)]
    whole = statistics.median(map(sum, shared))
    print(f"{len(trace)} events of {len(small)}; loading as many {loading:.2f} s; peak {held} MB, {peak_mb()} MB after")
    print(f"{'view':22}{'alone':>10}{'after the others':>18}   ms")
    for view, shared_s in zip(views, after, strict=True):
        first = statistics.median(alone(trace, view) for _ in range(options.rounds))
        print(f"{view.name:22}{first * 1e3:>10.1f}{shared_s * 1e3:>18.1f}", flush=True)
    print(f"{'all':22}{'':>10}{whole * 1e3:>18.1f}   ({whole / loading:.2f} of loading)")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--events", type=int, help="repeat the events until there are so many")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--view", action="append", help="only this view (may be given again)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
