"""Measure each view: ``python benchmarks/views.py SOURCE [SOURCE ...] [--events N] [--rounds N] [--view NAME]``

The program prints two times for each view, as medians of the rounds: alone on a new trace, and after all previous
views, with shared data already computed. It also prints the peak memory, and the total time of the views divided by the
loading time. ``--events`` repeats the events in memory, as one long recording of one rank.
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

from perfkit_core.base.algorithms.arrays import NO_ROW
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.readers.load import load
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.merging import table_of

NUMBERED = ("correlation", "sequence", "step")
"""Columns with numbers that must differ between copies."""
REFERENCES = ("parent", "launched_by")


def repeated(trace: Trace, count: int) -> Trace:
    """Return ``count`` events: copies of a trace in turn. Their ids, sequence numbers and steps differ."""
    shifts = {name: int(trace.ints(name).max()) + 1 for name in NUMBERED} | dict.fromkeys(REFERENCES, len(trace))
    shifts["start_ns"] = int(trace.end_ns.max() - trace.ints("start_ns").min()) + 1
    events = trace.events.unify_dictionaries().combine_chunks()
    copies = -(-count // len(trace))
    columns = {name: _column(events[name], shifts.get(name, 0), copies).slice(0, count) for name in schema.COLUMN_NAMES}
    for name in REFERENCES:  # references to events beyond ``count``
        columns[name] = pc.if_else(pc.less(columns[name], count), columns[name], NO_ROW)
    table = pa.table(columns, schema=events.schema)
    return Trace(table, trace.meta, trace.quality)


def _column(values: pa.ChunkedArray, shift: int, copies: int) -> pa.ChunkedArray:
    chunks = [chunk for copy in range(copies) for chunk in _later(values, copy * shift).chunks]
    if pa.types.is_string(values.type):  # a chunk of a text column cannot exceed 2 GiB
        return pa.chunked_array(chunks, values.type)
    return pa.chunked_array([pa.concat_arrays(chunks)], values.type)


def _later(values: pa.ChunkedArray, shift: int) -> pa.ChunkedArray:
    """Add ``shift`` to the values. Unknown values and -1 stay unchanged."""
    return pc.if_else(pc.less(values, 0), values, pc.add(values, shift)) if shift else values


def seconds(call: Callable[[], Any]) -> float:
    """Return the duration of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def alone(trace: Trace, view: View) -> float:
    """Return the seconds of one view on a trace without computed columns."""
    fresh = replace(trace, _cache=None)
    return seconds(lambda: table_of(view, fresh, ViewRequest()))


def one_after_the_other(trace: Trace, views: Sequence[View]) -> list[float]:
    """Return the seconds of each view on one trace."""
    fresh = replace(trace, _cache=None)
    return [seconds(lambda view=view: table_of(view, fresh, ViewRequest())) for view in views]  # type: ignore[misc]


def peak_mb() -> int:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    """Load the sources, repeat the events, and measure."""
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
    print(
        f"{len(trace)} events, repeated from {len(small)}; loading this number of events takes {loading:.2f} s; "
        f"peak memory {held} MB before the views and {peak_mb()} MB after them"
    )
    print(f"{'view':22}{'alone':>10}{'after the others':>18}   ms")
    for view, shared_s in zip(views, after, strict=True):
        first = statistics.median(alone(trace, view) for _ in range(options.rounds))
        print(f"{view.name:22}{first * 1e3:>10.1f}{shared_s * 1e3:>18.1f}", flush=True)
    print(f"{'all':22}{'':>10}{whole * 1e3:>18.1f}   ({whole / loading:.2f} × the loading time)")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--events", type=int, help="repeat the events until there are N events")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--view", action="append", help="run only this view; repeatable")
    return parser.parse_args()


if __name__ == "__main__":
    main()
