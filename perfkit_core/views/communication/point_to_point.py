"""View ``point_to_point``: messages between pairs of ranks, and how long one side waits for the other.

A send or receive may be recorded as two events. The operator names the other rank, and another event has the time:

- On the host (gloo), the label of the library ends when the data has arrived. Labels follow their operators in order.
- Sends and receives that are issued together (batch_isend_irecv) run in one kernel. It is the next kernel of sends and
  receives that the same thread launches.

The k-th send of one rank to another in a step is the k-th receive of the other rank from it, in the same group and with
the same tag. If two of them differ in size, they and all later ones of the step are not matched. Waits compare times of
two ranks, so they are known only if the clocks of both can be aligned (``clock_model``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.base.language.messages import Text, message
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.collective import DEVICE
from perfkit_core.trace.model.columns import count, duration, key, rate, size
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.communication import clock_model, instances
from perfkit_core.views.communication.collectives import per_second
from perfkit_core.views.communication.instances import (
    DETAILS,
    POINT_TO_POINT,
    SEND_RECV,
    Partial,
    communication,
    descriptions,
)
from perfkit_core.views.select import marked, selected, threads
from perfkit_core.views.tables import lower_median, no_rows

_OF_MESSAGES: Final = {
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
    parts = [part[list(_OF_MESSAGES)].astype(_OF_MESSAGES) for part in (ours, together) if len(part)] or [
        ours[list(_OF_MESSAGES)]
    ]
    ends = pd.concat(parts, ignore_index=True).astype(_OF_MESSAGES)
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
    return about.sort_values("issue_ns", kind="stable")


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


GROUPINGS: Final = ("step",)
_PAIR: Final = ["sender", "receiver", "group"]
_SEQUENCE: Final = [*_PAIR, "members", "tag", "step"]
_ENDS: Final = {"send": "sender", "recv": "receiver"}
"""The calls at the two ends of a message, and the column with the rank of each."""
_TOTALS: Final = {"bytes": "bytes", "send_ns": "dur_ns_send", "recv_ns": "dur_ns_recv",
                  "receiver_waited_ns": "receiver_waited", "sender_waited_ns": "sender_waited"}  # fmt: skip
_TYPES: Final = {
    "messages": "int64", "message_bytes": "Int64", "bytes": "Int64", "send_ns": "Int64", "recv_ns": "Int64",
    "receiver_waited_ns": "Int64", "sender_waited_ns": "Int64", "known_transfers": "int64", "transfer_ns": "Int64",
    "transfer_bandwidth_bytes_per_s": "Float64", "unmatched_sends": "int64", "unmatched_receives": "int64",
}  # fmt: skip


def merge(partials: Sequence[instances.Partial], request: ViewRequest) -> pd.DataFrame:
    """Return one row per sender, receiver and group (and step, if grouped). Times and sizes are those of the matched
    messages, NA if unknown."""
    keys = [*(["step"] if "step" in request.by else []), *_PAIR]
    pairs = matched(ends) if len(ends := instances.together(partials, "messages")) else ends
    if pairs.empty:
        return no_rows(dict.fromkeys(keys, "object") | _TYPES)
    pairs = _waits(pairs, partials)
    result = pairs.groupby(keys, dropna=False)[list(pairs.columns)].apply(_numbers).reset_index()
    result["group"] = result["group"].where(result["group"] != "", None)
    return result.astype({"sender": "Int64", "receiver": "Int64", **_TYPES})


def matched(ends: pd.DataFrame) -> pd.DataFrame:
    """Return one row per message of the chosen ends (:func:`messages`) that name the other rank. Columns:

    - sender, receiver, group, members, tag, step. Missing groups and members are "". Missing tags and steps are -1.
    - bytes. ``start_ns_send``, ``dur_ns_send``, ``start_ns_recv``, ``dur_ns_recv``: NA if unknown or not recorded.
    - ``at``: both, or the end of a message that is not matched: send, recv."""
    ends = ends[ends["peer"].notna() & ends["rank"].notna()]
    sends = ends["collective"] == "send"
    ends = ends.assign(
        sender=ends["rank"].where(sends, ends["peer"]), receiver=ends["peer"].where(sends, ends["rank"])
    ).fillna({"group": "", "members": "", "tag": -1, "step": -1})
    ends = ends.assign(order=ends.groupby(["collective", *_SEQUENCE], sort=False).cumcount())
    by_order = ends.groupby([*_SEQUENCE, "order"], sort=False)
    differs = by_order["bytes"].transform("nunique") > 1
    first = ends["order"].where(differs).groupby([ends[name] for name in _SEQUENCE]).transform("min")
    alone = (ends["order"] >= first.fillna(np.inf)) | (by_order["collective"].transform("size") < 2)
    chosen = ends["chosen"].astype(bool)
    send, recv = (ends[(ends["collective"] == call) & ~alone] for call in _ENDS)
    times = ["bytes", "start_ns", "dur_ns", "chosen"]
    both = send.merge(recv[[*_SEQUENCE, "order", *times]], on=[*_SEQUENCE, "order"], suffixes=("_send", "_recv"))
    # A message belongs to the selection if one of its ends does.
    both = both[(both["chosen_send"] | both["chosen_recv"]).astype(bool)]
    both = both.assign(bytes=both["bytes_send"].fillna(both["bytes_recv"]), at="both")
    rest = ends[alone & chosen]
    rest = rest.assign(at=rest["collective"]).drop(columns=times)
    columns = [*_SEQUENCE, "at", "bytes", *(f"{time}_{call}" for call in _ENDS for time in ("start_ns", "dur_ns"))]
    result = pd.concat([both, rest], ignore_index=True) if len(rest) else both
    return result.reindex(columns=columns).reset_index(drop=True)


def _waits(pairs: pd.DataFrame, partials: Sequence[instances.Partial]) -> pd.DataFrame:
    """Add the waits of both sides and the transfer time. They are NA if the clocks of the ranks are not aligned, or if
    data seems to arrive before it was sent, because the clocks are wrong."""
    clocks = clock_model.clock_offsets(instances.all_collectives(partials))
    reference = clocks["reference_rank"].where(clocks["offset_ns"].notna())
    references = [pairs[rank].map(reference).astype("Int64") for rank in _ENDS.values()]
    times = {}
    for call, of in _ENDS.items():
        ranks, start = pairs[of].to_numpy(np.int64), pairs[f"start_ns_{call}"].astype("Int64")
        for edge, time in (("start", start), ("end", start + pairs[f"dur_ns_{call}"].astype("Int64"))):
            ahead = clock_model.ahead_ns(clocks, ranks, np.asarray(time.fillna(0), np.int64))
            times[edge, call] = time - pd.Series(ahead, pairs.index)
    late = times["start", "send"] - times["start", "recv"]
    transfer = times["end", "recv"] - times["start", "recv"] - late.clip(lower=0)
    comparable = (references[0] == references[1]).fillna(False) & (transfer > 0).fillna(False)
    sending = times["end", "send"] - times["start", "send"]
    return pairs.assign(
        receiver_waited=late.clip(lower=0).where(comparable),
        sender_waited=(-late).clip(lower=0).clip(upper=sending.fillna(0)).where(comparable),
        transfer=transfer.where(comparable),
    )


def _numbers(pairs: pd.DataFrame) -> pd.Series[float]:
    both, unmatched = pairs[pairs["at"] == "both"], pairs["at"].value_counts()
    timed = both[both["transfer"].notna() & both["bytes"].notna()]
    total = {name: both[column].astype("Int64").sum(min_count=1) for name, column in _TOTALS.items()}
    return pd.Series(
        {
            "messages": len(both), "message_bytes": lower_median(both["bytes"]), **total,
            "known_transfers": int(both["transfer"].notna().sum()), "transfer_ns": lower_median(both["transfer"]),
            "transfer_bandwidth_bytes_per_s": per_second(timed["bytes"], timed["transfer"]),
            "unmatched_sends": int(unmatched.get("send", 0)), "unmatched_receives": int(unmatched.get("recv", 0)),
        },
        dtype=object,
    )  # fmt: skip


NO_MESSAGES: Final = message("no sends or receives were recorded")
_NO_PEERS: Final = message(
    "sends and receives were recorded, but not their peer ranks: record input shapes, or annotate the calls"
)


def explain(partials: Sequence[instances.Partial]) -> Text:
    """Return why no messages between ranks are known."""
    return _NO_PEERS if any(len(partial["messages"]) for partial in partials) else NO_MESSAGES


COLUMNS: Final = (
    key("step", "Step", by=("step",)),
    key("sender", "Sender", "rank that sends"),
    key("receiver", "Receiver", "rank that receives"),
    key("group", "Group"),
    count("messages", "Messages", "matched sends and receives", exact=True, over="steps"),
    size("message_bytes", "Message", "median size of a message", heading="size"),
    size("bytes", "Size", "size of all matched messages", over="steps"),
    duration("send_ns", "Send", "time in sends", over="steps"),
    duration("recv_ns", "Receive", "time in receives", over="steps"),
    duration("receiver_waited_ns", "Receiver waited", "from its receive to the send", over="steps"),
    duration("sender_waited_ns", "Sender waited", "from its send to the receive", over="steps"),
    count("known_transfers", "Known transfers", "messages with a known transfer time", over="steps"),
    duration("transfer_ns", "Transfer, median", "median time from the later start of both ends to the arrival"),
    rate("transfer_bandwidth_bytes_per_s", "Transfer bandwidth"),
    count("unmatched_sends", "Unmatched sends", "sends without a recorded receive", over="steps"),
    count("unmatched_receives", "Unmatched receives", "receives without a recorded send", over="steps"),
)

VIEW = View(
    name="point_to_point",
    title="Sends and receives",
    description="messages between pairs of ranks: size, time, bandwidth, and waits of one side for the other",
    table=instances.compared(reduce_each, merge, explain),
    columns=COLUMNS,
    groupings=GROUPINGS,
    explain_empty=lambda trace: explain(reduce_each(trace, ViewRequest())),
)
