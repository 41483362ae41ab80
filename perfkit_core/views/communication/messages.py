"""The sends and receives of a recording.

A send or receive may be recorded as two events. The operator names the other rank, and another event has the time:

- On the host (gloo), the label of the library ends when the data has arrived. Labels follow their operators in order.
- Sends and receives that are issued together (batch_isend_irecv) run in one kernel. It is the next kernel of sends and
  receives that the same thread launches."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.collective import DEVICE
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.communication import instances
from perfkit_core.views.communication.instances import (
    DETAILS,
    POINT_TO_POINT,
    SEND_RECV,
    Partial,
    communication,
    descriptions,
)
from perfkit_core.views.select import marked, selected, threads

_TYPES: Final = {
    "row": "int64", "rank": "Int64", "step": "Int64", "collective": "object", "group": "object", "members": "object",
    "peer": "Int64", "tag": "Int64", "bytes": "Int64", "issue_ns": "int64", "start_ns": "Int64", "dur_ns": "Int64",
}  # fmt: skip


@once
def messages(trace: Trace) -> pd.DataFrame:
    """Return one row for each recorded end of a message, in the order of issue on each rank. Columns:

    - row (in the event table), issue_ns (start of the call): int64.
    - collective: send or recv. group, members: text, None if unknown.
    - rank, step, peer (the other rank), tag, bytes: Int64, NA if unknown.
    - start_ns, dur_ns: Int64, NA if only the call was recorded. Messages in one kernel have the times of the kernel."""
    timed, issued = detailed(trace), _issued(trace)
    ours = timed[timed["collective"].isin(POINT_TO_POINT)]
    issued = issued[issued["name"].isin(POINT_TO_POINT) & ~issued.index.isin(ours["operator"])]
    kernels = ours["row"][~trace.host[ours["row"].to_numpy(np.int64)]].to_numpy(np.int64)
    issued = issued[~issued["call"].isin(communication(trace).call[kernels])]

    rows, kernel = issued.index.to_numpy(np.int64), _shared_kernels(trace, timed, issued)
    together = issued.assign(row=rows, collective=issued["name"])
    for name, at in (("step", rows), ("bytes", rows), ("start_ns", kernel), ("dur_ns", kernel)):
        values = pd.Series(trace.ints(name, NO_ROW)[at], together.index)
        together[name] = values.where((at != NO_ROW) & (values != NO_ROW)).astype("Int64")
    parts = [part[list(_TYPES)].astype(_TYPES) for part in (ours, together) if len(part)] or [ours[list(_TYPES)]]
    ends = pd.concat(parts, ignore_index=True).astype(_TYPES)
    ends["rank"] = ends["rank"].where(ends["rank"] >= 0)
    return ends.sort_values(["rank", "issue_ns"], kind="stable", ignore_index=True)


@once
def detailed(trace: Trace) -> pd.DataFrame:
    """Return the table of :func:`instances.instances` with one more column. Labels on the host have the details (peer,
    received elements) that only their operators record, and begin with their operator. ``operator`` is its row, else
    -1."""
    frame, issued = instances.instances(trace), _issued(trace)
    on_host = trace.host[frame["row"].to_numpy(np.int64)]
    labels = frame[on_host & frame[list(DETAILS)].isna().all(axis=1)].sort_values("start_ns", kind="stable")
    operator = pd.Series(NO_ROW, frame.index, dtype="int64")
    for (rank, name), mine in labels.fillna({"rank": NO_ROW}).groupby(["rank", "collective"]):
        calls = issued[(issued["rank"] == rank) & (issued["name"] == name)]
        operator[mine.index] = _in_order(calls["issue_ns"], mine["start_ns"])

    about, linked = descriptions(trace).reindex(operator), operator != NO_ROW
    details = {
        name: frame[name].fillna(pd.Series(about[name].tolist(), frame.index, dtype="Int64")) for name in DETAILS
    }
    start = frame["start_ns"].where(~linked, trace.ints("start_ns")[operator])
    times = {"start_ns": start, "dur_ns": frame["start_ns"] + frame["dur_ns"] - start}
    return frame.assign(operator=operator, **details, **times, issue_ns=frame["issue_ns"].where(~linked, start))


def _in_order(calls: pd.Series[int], labels: pd.Series[int]) -> IntArray:
    """Return the row of each label's operator, shape (labels,): the first operator that no earlier label has and that
    began before the label, else -1. ``calls`` has the starts of the operators by row, ``labels`` those of the labels.
    Both are in order of time."""
    rows, begun = calls.index.tolist(), calls.tolist()
    next_call, operators = 0, []
    for start in labels.tolist():
        fits = next_call < len(rows) and begun[next_call] <= start
        operators.append(rows[next_call] if fits else NO_ROW)
        next_call += fits
    return np.array(operators, np.int64)


@once
def _issued(trace: Trace) -> pd.DataFrame:
    """Return the rows of :func:`descriptions` of host calls with details that leave the work to another event, in the
    order of their start. Additional columns: ``rank`` (-1 if unknown) and ``issue_ns``. Of nested calls, only the
    innermost counts."""
    about = descriptions(trace)
    has_details = about[list(DETAILS)].notna().any(axis=1) & (about["on"] == DEVICE)
    about = about[has_details & trace.host[about.index.to_numpy(np.int64)]]
    outer = nesting.holds(trace.ints("parent"), marked(trace, about.index.to_numpy(np.int64)))
    about = about[~outer[about.index.to_numpy(np.int64)]]
    rows = about.index.to_numpy(np.int64)
    about = about.assign(rank=trace.ints("rank")[rows], issue_ns=trace.ints("start_ns")[rows])
    issued: pd.DataFrame = about.sort_values("issue_ns", kind="stable")
    return issued


def _shared_kernels(trace: Trace, timed: pd.DataFrame, issued: pd.DataFrame) -> IntArray:
    """Return the row of the kernel in which each of the issued messages runs, -1 if there is none."""
    names, start, thread = trace.codes("name"), trace.ints("start_ns"), threads(trace).code
    is_shared = np.fromiter((SEND_RECV.search(name) is not None for name in names.values), np.bool_, len(names.values))
    rows = timed["row"][timed["collective"].isna()].to_numpy(np.int64)
    launch = trace.ints("launched_by")[rows]
    usable = names.lookup(is_shared, False)[rows] & (launch != NO_ROW)
    rows, launch = rows[usable], launch[usable]
    kernels = pd.DataFrame({"thread": thread[launch], "time": start[launch], "kernel": rows}).sort_values("time")
    calls = pd.DataFrame({"thread": thread[issued.index.to_numpy(np.int64)], "time": issued["issue_ns"].to_numpy()})
    following = pd.merge_asof(calls, kernels, on="time", by="thread", direction="forward")["kernel"]
    return following.fillna(NO_ROW).to_numpy(np.int64)


def reduce_each(trace: Trace, request: ViewRequest) -> list[Partial]:
    """Return the result of :func:`instances.reduce_each` with one more table for each rank: ``messages``, the rows of
    :func:`messages`."""
    ends, chosen = messages(trace), selected(trace, request)
    ends = ends.drop(columns="row").assign(chosen=chosen[ends["row"].to_numpy(np.int64)])
    parts = instances.reduce_each(trace, request)
    return [part | {"messages": ends[ends["rank"].fillna(NO_ROW) == part["rank"]]} for part in parts]
