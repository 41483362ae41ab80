"""Views of long recordings, computed part by part. Each part is read, reduced and dropped, so that the memory does not
grow with the recording. The merged tables equal those of the whole recording."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np

from perfkit_core.base.algorithms.arrays import NO_ROW
from perfkit_core.plugins.contracts import View
from perfkit_core.ranks.plan import Job, Partial
from perfkit_core.ranks.reduce import reduce_trace
from perfkit_core.trace.assembly.lost_records import CODES, lost_records
from perfkit_core.trace.model.event_columns import OutsidePartError
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.steps.step_rows import step_rows

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
