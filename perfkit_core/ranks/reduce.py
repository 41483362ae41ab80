"""Reduction of one rank: read its files, compute a partial result for each requested view, and drop the events.

The views of a long recording are computed part by part. Each part is read, reduced and dropped, so that the memory does
not grow with the recording. The merged tables equal those of the whole recording."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa

from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.base.system.paths import as_path
from perfkit_core.errors import PerfkitError, UsageError
from perfkit_core.plugins.contracts import View, ViewRequest, split_grouping
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.ranks.plan import Failed, Job, Partial, RankFiles, RankSummary
from perfkit_core.readers import join_ranks, load
from perfkit_core.trace.assembly.chosen_steps import with_steps_on
from perfkit_core.trace.assembly.lost_records import CODES, lost_records
from perfkit_core.trace.model import account, schema
from perfkit_core.trace.model.event_columns import ROW_REFERENCES, OutsidePartError
from perfkit_core.trace.model.trace import Trace, concat_traces, with_rank
from perfkit_core.views.merging import reduction
from perfkit_core.views.select import step_numbers
from perfkit_core.views.steps.inferred_steps import with_inferred_steps
from perfkit_core.views.steps.step_rows import step_rows

_LARGE_META: Final = ("extra", "thread_names")
"""Fields of the metadata that are left out of partial results, because only views of a single rank need them."""


def understood(view: View, request: ViewRequest) -> ViewRequest:
    """Return the request without what the view does not support. This may be ``--native`` and groupings of ``--by``.
    ``--by operator`` applies to all views with this grouping, ``--by families.operator`` only to view ``families``."""
    groupings = (item.removeprefix(f"{view.name}.") for item in request.by)
    by = tuple(item for item in groupings if split_grouping(item)[0] in view.groupings)
    return replace(request, by=by, native=request.native and view.computed.native)


def split(trace: Trace) -> list[Trace]:
    """Split a trace into one trace for each rank, in rank order. Ranks without events are included. Events of unknown
    rank come first. Row references are renumbered. The traces share memory, so that many ranks take little. The first
    trace has the account of all events."""
    if len(trace.meta.ranks) < 2 or not len(trace):
        return [trace]
    of_event, events = trace.ints("rank"), trace.events
    ranks = np.array(sorted({*np.unique(of_event).tolist(), *trace.meta.ranks}), np.int64)
    order = np.argsort(of_event, kind="stable")
    in_order = of_event[order]
    if (of_event != in_order).any():
        events = events.take(pa.array(order))
    first, end = (np.searchsorted(in_order, ranks, side) for side in ("left", "right"))
    position = np.empty(len(trace), np.int64)  # of each event among the events of its rank
    position[order] = np.arange(len(trace)) - first[np.searchsorted(ranks, in_order)]
    moved = {}
    for name in ROW_REFERENCES:
        row = trace.ints(name)[order]
        moved[name] = np.where((row >= 0) & (of_event[row] == in_order), position[row], NO_ROW)

    def rows_of(rank: int) -> Callable[[IntArray], IntArray]:
        return lambda rows: np.where(of_event[rows] == rank, position[rows], NO_ROW)

    traces: list[Trace] = []
    for rank, start, stop in zip(ranks.tolist(), first.tolist(), end.tolist(), strict=True):
        references = {name: pa.array(rows[start:stop]) for name, rows in moved.items()}
        part = trace.with_rows(events.slice(start, stop - start), rows_of(rank))
        if traces:
            part = part.with_tables(account=account.to_table(()))
        traces.append(part.with_columns(**references).with_meta(ranks=() if rank < 0 else (rank,)))
    return traces


def reduce_rank(files: RankFiles, job: Job) -> tuple[Partial, ...] | Failed:
    """Read files, and return the partial results of each rank in them (usually one rank). A PerfkitError is returned
    as Failed, so that the function can run in another process."""
    try:
        paths = [as_path(path) for path in files.paths]
        traces = [load.named(load.load_one(path, job.reading), path) for path in paths]
        rank_recorded = all(trace.meta.ranks for trace in traces)
        if files.rank is not None:
            traces = [trace if trace.meta.ranks else with_rank(trace, files.rank) for trace in traces]
        join_ranks.check_apart(traces)
        joined = concat_traces(sorted(traces, key=join_ranks.in_time))
        joined = joined.with_findings(*join_ranks.cycles_by_name([trace.meta for trace in traces]))
        if job.reading.step_on is not None:
            joined = with_steps_on(joined, job.reading.step_on)
        return tuple(reduce_trace(trace, job, rank_recorded) for trace in split(joined))
    except PerfkitError as error:
        return Failed(error.message, error.hint, isinstance(error, UsageError))


def reduce_trace(trace: Trace, job: Job, rank_recorded: bool = True) -> Partial:
    """Return the partial results of a trace of one rank. Raises UsageError."""
    trace = trace if job.request.native else with_inferred_steps(trace)
    views = get_plugins().views()
    steps = step_numbers(trace)
    requested = job.request.steps
    if requested is not None:  # steps that this rank lacks may exist in other ranks
        requested = tuple(step for step in requested if step in set(steps))
    elif job.only_steps:
        requested = steps
    request = replace(job.request, steps=requested)
    partials = {name: reduction(views[name]).reduce(trace, understood(views[name], request)) for name in job.views}
    meta = msgspec.structs.replace(trace.meta, **{name: {} for name in _LARGE_META})
    empty = {}
    unknown: set[str] = set()  # recorded columns that are empty in at least one table
    names = {name for name in schema.COLUMN_NAMES if trace.has_values(name)}
    for name, partial in partials.items():
        tables = list(_tables(partial))
        unknown |= {column for table in tables for column in names & {*table.columns} if table[column].isna().all()}
        if all(table.empty for table in tables):
            empty[name] = views[name].explain_empty(trace)
    recorded = tuple(name for name in schema.COLUMN_NAMES if name in unknown)
    timed = trace.timed_steps
    _, groups = join_ranks.steps_and_groups(trace)
    facts = RankSummary(meta, trace.quality, rank_recorded, len(trace), steps, timed, recorded, empty, groups)
    return Partial(facts, partials)


def _tables(partial: Any) -> Iterator[pd.DataFrame]:
    if isinstance(partial, pd.DataFrame):
        yield partial
    elif isinstance(partial, Mapping):
        yield from (table for value in partial.values() for table in _tables(value))
    elif isinstance(partial, (list, tuple)):
        yield from (table for value in partial for table in _tables(value))


PART_ROWS: Final = 1 << 21
"""Number of events that are read for one part. More are read if no cut is found in them."""
_MOST: Final = 4
"""Maximum number of times PART_ROWS that are read for one part, except the last."""
_UNCUT: Final = 16
"""The last 1/_UNCUT of the events that are read for a part only shows which work starts there. No cut lies in it."""


def reduce_parts(trace: Trace, views: Sequence[View], job: Job) -> list[Partial]:
    """Return the partial results of the parts of a trace of one rank, in order of time, for views with
    ``in_parts``.

    Between two parts, no event runs, and no work waits for its start. Each part has steps, whose numbers are larger
    than those of earlier parts. Return an empty list if the trace is shorter than two parts, or cannot be divided like
    this. Raises UsageError."""
    job = msgspec.structs.replace(job, views=tuple(view.name for view in views))
    partials: list[Partial] = []
    begins, rows, expected = [0], PART_ROWS, None
    while (first := begins[-1]) < len(trace):
        last = first + rows + PART_ROWS > len(trace)
        if last and not first:
            return []
        try:
            part = trace.part(first, len(trace) if last else first + rows)
            part = part if last else part.part(0, _last_quiet_row(part))
            of_whole = _of_whole(part, views)
            if of_whole is not None and of_whole == (expected or of_whole):
                partials.append(reduce_trace(part, job))
                begins.append(first + len(part))
                rows, expected = PART_ROWS, of_whole
                steps = [partial.facts.steps for partial in partials[-2:]]
                if steps[0][-1] >= steps[-1][0] and len(steps) > 1:
                    return []
                continue
        except OutsidePartError:
            pass
        if last and rows < len(trace):  # join the last two parts
            rows = len(trace)
            del partials[-1], begins[-1]
        elif last or rows >= _MOST * PART_ROWS:
            return []
        else:
            rows *= 2
    return partials


def _of_whole(trace: Trace, views: Sequence[View]) -> list[Any] | None:
    """Return what views take from the recording as a whole, None if the trace cannot be a part."""
    ranks = np.unique(trace.ints("rank")[step_rows(trace)])
    if len(ranks) != 1 or (np.diff(trace.ints("start_ns")) < 0).any():
        return None
    # a lost replay may show only beside a replay of another part
    if lost_records(trace) or any(finding.code in CODES for finding in trace.quality):
        return None
    of_views = [view.computed.in_parts for view in views]
    values = [ranks[0], *(in_parts(trace) for in_parts in of_views if in_parts is not None)]
    return None if None in values else values


def _last_quiet_row(trace: Trace) -> int:
    """Return the last row before which all earlier events have ended and no launch has its work in this row or later, 0
    if there is none. Work in rows that are not in ``trace`` is not considered."""
    start, launched_by = trace.ints("start_ns"), trace.ints("launched_by")
    count = len(trace) - len(trace) // _UNCUT
    quiet = np.flatnonzero(start[1:count] > np.maximum.accumulate(trace.end_ns[:count])[:-1]) + 1
    work = np.flatnonzero(launched_by != NO_ROW)
    launch = launched_by[work]
    begins = np.searchsorted(quiet, np.minimum(launch, work), "right")
    ends = np.searchsorted(quiet, np.maximum(launch, work), "right")
    waiting = np.bincount(begins, minlength=len(quiet) + 1) - np.bincount(ends, minlength=len(quiet) + 1)
    return int(quiet[np.cumsum(waiting)[:-1] == 0].max(initial=0))
