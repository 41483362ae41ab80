"""One rank: read, reduced to the partials of all views that are asked for, and forgotten.

A trace of several ranks as a trace for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa

from perfkit_core.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.errors import PerfkitError, UsageError
from perfkit_core.model import schema
from perfkit_core.model.trace import Trace, concat_traces, with_rank
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.ranks.job import Facts, Failed, Job, Partial, RankFiles, understood
from perfkit_core.readers.join_ranks import check_apart, in_time
from perfkit_core.readers.load import load_one, named
from perfkit_core.system.paths import as_path
from perfkit_core.views.select import step_numbers
from perfkit_core.views.tables import reduction

_REFERENCES = ("parent", "launched_by")


def split(trace: Trace) -> list[Trace]:
    """The ranks of a trace, in order, those without events too; events of unknown rank are the first. Row references
    lie within a rank, and count in its own rows."""
    if len(trace.meta.ranks) < 2 or not len(trace):
        return [trace]
    rank = trace.ints("rank")
    ranks = sorted({*np.unique(rank).tolist(), *trace.meta.ranks})
    return [_of_rank(trace, np.flatnonzero(rank == one), one) for one in ranks]


def _of_rank(trace: Trace, rows: IntArray, rank: int) -> Trace:
    position = np.full(len(trace) + 1, NO_ROW, np.int64)
    position[rows] = np.arange(len(rows))
    references = {name: pa.array(position[trace.ints(name)[rows]]) for name in _REFERENCES}
    some = Trace(trace.events.take(pa.array(rows)), trace.meta, trace.quality)
    return some.with_columns(**references).with_meta(ranks=() if rank < 0 else (rank,))


_LARGE: Final = ("extra", "thread_names")
"""What of a trace's meta is for its own views only."""


def reduce_rank(files: RankFiles, job: Job) -> tuple[Partial, ...] | Failed:
    """The partials of the files of a rank (of several ranks where a file holds them). Runs in any process: it takes and
    returns plain data, and never raises a PerfkitError."""
    try:
        trace, told = _read(files, job.partial)
        return tuple(reduce_trace(one, job, told) for one in split(trace))
    except PerfkitError as error:
        return Failed(error.message, error.hint, isinstance(error, UsageError))


def reduce_trace(trace: Trace, job: Job, told: bool = True) -> Partial:
    """The partial of a trace of one rank. Raises UsageError."""
    known = get_plugins().views()
    steps = step_numbers(trace)
    request = replace(job.request, steps=_own(job, steps))
    views = {name: reduction(known[name]).reduce(trace, understood(known[name], request)) for name in job.views}
    meta = msgspec.structs.replace(trace.meta, **{name: {} for name in _LARGE})
    empty = {name: known[name].explain_empty(trace) for name, found in views.items() if _is_empty(found)}
    return Partial(Facts(meta, trace.quality, told, len(trace), steps, _recorded(trace, views), empty), views)


def _read(files: RankFiles, partial: bool) -> tuple[Trace, bool]:
    """The trace of a rank, its cycles in the order of their time, and whether it told its rank."""
    paths = [as_path(path) for path in files.paths]
    traces = [named(load_one(path, partial), path) for path in paths]
    told = all(trace.meta.ranks for trace in traces)
    if files.rank is not None:
        traces = [trace if trace.meta.ranks else with_rank(trace, files.rank) for trace in traces]
    check_apart(traces)
    return concat_traces(sorted(traces, key=in_time)), told


def _own(job: Job, steps: tuple[int, ...]) -> tuple[int, ...] | None:
    """Of the wanted steps those that this rank has: others may have the rest."""
    if job.request.steps is None:
        return steps if job.own_steps else None
    return tuple(step for step in job.request.steps if step in set(steps))


def _tables(partial: Any) -> Iterator[pd.DataFrame]:
    """The tables in a partial."""
    if isinstance(partial, pd.DataFrame):
        yield partial
    elif isinstance(partial, Mapping):
        yield from (table for value in partial.values() for table in _tables(value))
    elif isinstance(partial, (list, tuple)):
        yield from (table for value in partial for table in _tables(value))


def _is_empty(partial: Any) -> bool:
    return all(table.empty for table in _tables(partial))


def _recorded(trace: Trace, views: Mapping[str, Any]) -> tuple[str, ...]:
    """Columns of the events that hold something, although a table of this name has nothing there."""
    tables = [table for found in views.values() for table in _tables(found)]
    nothing = {str(name) for table in tables for name in table.columns if table[name].isna().all()}
    return tuple(name for name in schema.COLUMN_NAMES if name in nothing and trace.known(name))
