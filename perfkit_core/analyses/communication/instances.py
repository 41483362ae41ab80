"""The collectives that took place: one row each, with what is known about it.

Where a library's kernels were recorded, each kernel is one; other kernels that a call launched (an inference engine's
own) are one together. On the host they are the events that an adapter described as communicating themselves; where it
described none, the outermost calls that launched nothing.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core.analyses.communication.collectives import (
    COLLECTIVES,
    Communication,
    communication,
    named_as_collective,
)
from perfkit_core.analyses.communication.facts import descriptions, facts
from perfkit_core.analyses.once import once
from perfkit_core.analyses.tables import integers
from perfkit_core.collectives import HOST
from perfkit_core.schema import COMMUNICATION, NO_ROW
from perfkit_core.trace import BoolArray, IntArray, Trace


@once
def instances(trace: Trace) -> pd.DataFrame:
    """A row a collective, by rank and time of issue: ``row`` of the event, rank, step, group_size, bytes, sequence,
    stream (Int64, NA where unknown), collective, group, members, dtype, algorithm, protocol (text or None), start_ns,
    dur_ns, issue_ns (when the host asked for it)."""
    talk = communication(trace)
    told = descriptions(trace, talk)
    rows = np.concatenate([_on_device(trace, talk), _on_host(trace, talk, told)])
    places = {name: known(trace.ints(name)[rows]) for name in ("rank", "step", "stream")}
    frame = pd.DataFrame({"row": rows, **places, **_times(trace, talk, rows), **facts(trace, talk, told, rows)})
    return frame.sort_values(["rank", "issue_ns", "start_ns"], kind="stable", na_position="first", ignore_index=True)


def _on_device(trace: Trace, talk: Communication) -> IntArray:
    """A row for each collective: kernels by name, and the first of the others of each call that has none such."""
    named = talk.device & _alone(trace)
    others = np.flatnonzero(talk.device & ~named & (talk.call != NO_ROW))
    others = others[~np.isin(talk.call[others], talk.call[named])]
    first = np.unique(talk.call[others], return_index=True)[1]
    return np.concatenate([np.flatnonzero(named), others[first]])


def _on_host(trace: Trace, talk: Communication, told: pd.DataFrame) -> IntArray:
    own: IntArray = told.index.to_numpy(np.int64)[(told["on"] == HOST).to_numpy()]
    if len(told):
        return own
    return np.flatnonzero(talk.host & trace.rows("op_name", *COLLECTIVES))


def _times(trace: Trace, talk: Communication, rows: IntArray) -> dict[str, IntArray]:
    """From the first start to the last end of the device work of a call, where that is one collective."""
    start, end, call = trace.ints("start_ns")[rows], trace.end_ns[rows], talk.call[rows]
    if not len(rows):
        return {"start_ns": start, "dur_ns": start, "issue_ns": start}
    together = (talk.device & ~_alone(trace))[rows]
    end = np.where(together, _last_end(trace, talk)[call], end)
    issue = np.where(call == NO_ROW, start, trace.ints("start_ns")[call])
    return {"start_ns": start, "dur_ns": end - start, "issue_ns": issue}


def _alone(trace: Trace) -> BoolArray:
    """True for device events that are a collective each."""
    return named_as_collective(trace) | trace.rows("kind", COMMUNICATION)


def _last_end(trace: Trace, talk: Communication) -> IntArray:
    last = np.zeros(len(trace), np.int64)
    launched = np.flatnonzero(talk.device & (talk.call != NO_ROW))
    np.maximum.at(last, talk.call[launched], trace.end_ns[launched])
    return last


def known(values: IntArray) -> pd.arrays.IntegerArray:
    """Int64, NA where negative."""
    return integers(np.maximum(values, 0), values >= 0)
