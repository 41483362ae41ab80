"""Do parents enclose, does self time add up, do launches point at the host?"""

from __future__ import annotations

import numpy as np

from perfkit_core import intervals
from perfkit_core.schema import DEVICE_WORK, MEMORY, NO_ROW, RUNTIME, SYNC
from perfkit_core.testing.require import require_rows
from perfkit_core.trace import Trace


def check_tree(trace: Trace, own_tree: bool) -> None:
    """Parents come before their children, are host events of the same process, and enclose them in time and thread."""
    parent, rows = trace.ints("parent"), np.arange(len(trace))
    require_rows(trace, (parent >= NO_ROW) & (parent < rows), "parent is not an earlier row")
    child = np.flatnonzero(parent != NO_ROW)
    above = parent[child]
    nests = ~trace.events["self_ns"].is_null().to_numpy()
    good = np.ones(len(trace), np.bool_)
    good[child] = (nests | trace.rows("kind", MEMORY))[child] & nests[above]
    for name in ("rank", "pid") if own_tree else ("rank", "pid", "tid"):
        good[child] &= trace.ints(name)[child] == trace.ints(name)[above]
    require_rows(trace, good, "parent is not a nesting host event of the same thread")
    if not own_tree:
        good[child] = (trace.ints("start_ns")[above] <= trace.ints("start_ns")[child]) & (
            trace.end_ns[child] <= trace.end_ns[above]
        )
        require_rows(trace, good, "parent does not enclose")


def check_self_times(trace: Trace) -> None:
    """Self time is the duration less the union of the direct children, so never negative."""
    parent, own, duration = trace.ints("parent"), trace.ints("self_ns"), trace.ints("dur_ns")
    nests = ~trace.events["self_ns"].is_null().to_numpy()
    require_rows(trace, ~nests | ((own >= 0) & (own <= duration)), "self_ns is not between 0 and dur_ns")
    child = np.flatnonzero(parent != NO_ROW)
    above = parent[child]
    start = np.maximum(trace.ints("start_ns")[child], trace.ints("start_ns")[above])
    end = np.minimum(trace.end_ns[child], trace.end_ns[above])
    covered = intervals.union_length_by(above, len(trace), start, end)
    require_rows(trace, ~nests | (own + covered == duration), "self_ns + union of the children is not dur_ns")


def check_launches(trace: Trace) -> None:
    """Only device events are launched, by host events of the same rank; runtime calls share the correlation."""
    launched_by, rows = trace.ints("launched_by"), len(trace)
    require_rows(trace, (launched_by >= NO_ROW) & (launched_by < rows), "launched_by is not a row")
    launched = np.flatnonzero(launched_by != NO_ROW)
    by = launched_by[launched]
    good = np.ones(rows, np.bool_)
    good[launched] = trace.host[by] & ~trace.rows("kind", *DEVICE_WORK)[by]
    require_rows(trace, good, "launched_by is not a host event")
    require_rows(trace, ~trace.host | (launched_by == NO_ROW), "a host event is launched")
    good[launched] = trace.ints("rank")[launched] == trace.ints("rank")[by]
    require_rows(trace, good, "launched by another rank")
    same = trace.ints("correlation")[launched] == trace.ints("correlation")[by]
    good[launched] = same | ~trace.rows("kind", RUNTIME, SYNC)[by]
    require_rows(trace, good, "launched by a call with another correlation")
