"""View ``point_to_point``: messages between pairs of ranks, and how long one side waits for the other.

The k-th send of one rank to another in a step is the k-th receive of the other rank from it, in the same group and with
the same tag. If two of them differ in size, they and all later ones of the step are not matched. Waits compare times of
two ranks, so they are known only if the clocks of both can be aligned (``clock_model``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.language.messages import Text, message
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.trace.model.columns import count, duration, key, rate, size
from perfkit_core.views.communication import clock_model, instances
from perfkit_core.views.communication.collectives import per_second
from perfkit_core.views.communication.messages import reduce_each
from perfkit_core.views.select import check_groupings
from perfkit_core.views.tables import lower_median, no_rows

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
    check_groupings("point_to_point", request, GROUPINGS)
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
    key("sender", "Sender", description="rank that sends"),
    key("receiver", "Receiver", description="rank that receives"),
    key("group", "Group"),
    count("messages", "Messages", exact=True, over="steps", description="matched sends and receives"),
    size("message_bytes", "Message", heading="size", description="median size of a message"),
    size("bytes", "Size", over="steps", description="size of all matched messages"),
    duration("send_ns", "Send", over="steps", description="time in sends"),
    duration("recv_ns", "Receive", over="steps", description="time in receives"),
    duration("receiver_waited_ns", "Receiver waited", over="steps", description="from its receive to the send"),
    duration("sender_waited_ns", "Sender waited", over="steps", description="from its send to the receive"),
    count("known_transfers", "Known transfers", over="steps", description="messages with a known transfer time"),
    duration(
        "transfer_ns", "Transfer, median", description="median time from the later start of both ends to the arrival"
    ),
    rate("transfer_bandwidth_bytes_per_s", "Transfer bandwidth"),
    count("unmatched_sends", "Unmatched sends", over="steps", description="sends without a recorded receive"),
    count("unmatched_receives", "Unmatched receives", over="steps", description="receives without a recorded send"),
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
