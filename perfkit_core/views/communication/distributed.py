"""View ``distributed``: the time of communication and computation, and how much of the communication is hidden.

The time of each is a union over the threads, streams and devices of a rank. The overlap is the time during which both
run. The rest of the communication is exposed. If steps were recorded, only time inside the steps counts. Times are
summed over ranks. Communication is defined in ``instances``, computation in ``activity``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import intervals, nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray
from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import Reduced, View, ViewRequest
from perfkit_core.trace.model.columns import DEVICE, RATIO, added_by, count, duration, key, size
from perfkit_core.trace.model.schema import COMMUNICATION, KERNEL, OPERATOR
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.attribution import native_owners
from perfkit_core.views.communication.instances import communication, instances
from perfkit_core.views.select import accounted, in_steps, ranks, selected, span
from perfkit_core.views.steps.activity import activities
from perfkit_core.views.steps.step_rows import native_steps
from perfkit_core.views.tables import ratio

GROUPINGS: Final = ("rank",)
PARTS: Final = ("step", "communication", "computation", "overlap", "exposed_communication")
_TYPES: Final = {"host_calls": "Int64", "device_calls": "Int64", "time_ns": "Int64", "ratio": "Float64",
                 "bytes": "Int64"}  # fmt: skip


def reduce(trace: Trace, request: ViewRequest) -> list[dict[str, Any]]:
    """Return one dictionary per rank: the rank (-1 if unknown), calls and time of each part, and message bytes."""
    return list((_native if request.native else _measured)(trace, request))


def merge(partials: Sequence[list[dict[str, Any]]], request: ViewRequest) -> pd.DataFrame:
    """Return one row per part: step, communication, computation, overlap, exposed_communication. Columns:
    :data:`COLUMNS`. The table is empty if no communication was recorded. If no device work was recorded, the row
    ``computation`` has host_calls instead of device_calls."""
    by_rank = "rank" in request.by
    measured = list({rank["rank"]: rank for partial in partials for rank in partial}.values())
    if not any(rank["host_calls"]["communication"] or rank["device_calls"]["communication"] for rank in measured):
        measured = []
    elif not by_rank:
        sizes = [rank["bytes"] for rank in measured if rank["bytes"] is not None]
        added = {name: _added([rank[name] for rank in measured]) for name in ("host_calls", "device_calls", "time_ns")}
        measured = [{"rank": None, **added, "bytes": sum(sizes) if sizes else None}]
    rows = [
        {
            "rank": None if rank["rank"] == -1 else rank["rank"],
            "part": part,
            "host_calls": rank["host_calls"].get(part),
            "device_calls": rank["device_calls"].get(part),
            "time_ns": rank["time_ns"][part],
            "ratio": float(ratio(rank["time_ns"][part], rank["time_ns"]["step"])),
            "bytes": rank["bytes"] if part == "communication" else None,
        }
        for rank in measured
        for part in PARTS
    ]
    result = pd.DataFrame(rows, columns=["rank", "part", *_TYPES]).astype({"rank": "Int64", **_TYPES})
    return result if by_rank else result.drop(columns="rank")


def _added(ranks: Sequence[Mapping[str, int]]) -> dict[str, int]:
    names = dict.fromkeys(name for parts in ranks for name in parts)
    return {name: sum(parts.get(name, 0) for parts in ranks) for name in names}


def _measured(trace: Trace, request: ViewRequest) -> Iterator[dict[str, Any]]:
    chosen, here, rank = accounted(trace, request), in_steps(trace, request), trace.ints("rank")
    talk, acts = communication(trace), activities(trace)
    for number in ranks(trace).tolist():
        mine = rank == number
        steps, sets = span(trace, here & mine), acts.of(trace, number, chosen)
        talking, computing = intervals.intersect(sets.communication, steps), intervals.intersect(sets.compute, steps)
        overlap, exposed = intervals.intersect(talking, computing), intervals.subtract(talking, computing)
        times = map(intervals.length, (steps, talking, computing, overlap, exposed))
        rows = np.flatnonzero(chosen & mine & (talk.calls | talk.device | acts.compute))
        rows = rows[intervals.covered_ns(steps, trace.ints("start_ns")[rows], trace.end_ns[rows]) > 0]
        host, device = ({"communication": int(mask[rows].sum())} for mask in (talk.calls, talk.device))
        (device if acts.on_device else host)["computation"] = int(acts.compute[rows].sum())

        # Count the message of each collective once. For other communication, add up the sizes of the events.
        sized = instances(trace)
        sized = sized[sized["bytes"].notna()]
        at, start = sized["row"].to_numpy(np.int64), sized["start_ns"].to_numpy(np.int64)
        counted = (chosen & mine)[at] & (
            intervals.covered_ns(steps, start, start + sized["dur_ns"].to_numpy(np.int64)) > 0
        )
        without_instance = rows[(talk.device | talk.host)[rows] & ~np.isin(rows, at)]
        calls = talk.call[at]
        without_instance = without_instance[~np.isin(talk.call[without_instance], calls[calls != NO_ROW])]
        event_bytes = trace.ints("bytes", -1)[without_instance]
        moved = np.concatenate([sized["bytes"].to_numpy(np.int64)[counted], event_bytes[event_bytes >= 0]])
        size = int(moved.sum()) if len(moved) else None
        time = dict(zip(PARTS, times, strict=True))
        yield {"rank": number, "host_calls": host, "device_calls": device, "time_ns": time, "bytes": size}


WORDS: Final = ("allreduce", "broadcast", "rpc")
_KERNEL_WORDS: Final = ("nccl", "xccl")


def native_communication(trace: Trace) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Return three masks as in Paddle's Distribution Summary: host communication, device communication, computation.

    - Host communication: events of kind communication, and operators with one of ``WORDS`` in their name.
    - Device communication: kernels launched inside these events, and kernels with nccl or xccl in their name.
    - Computation: kernels without nccl or xccl in their name that no host communication event launched directly.

    A kernel without nccl or xccl in its name is both device communication and computation if the event that launched
    it is inside a host communication event, but is not itself one."""
    operators = trace.rows("kind", OPERATOR) & _named(trace, WORDS)
    host = trace.host & (trace.rows("kind", COMMUNICATION) | operators)
    owner = native_owners(trace)
    kernels = trace.rows("kind", KERNEL) & (owner != NO_ROW)
    inside = nesting.nearest_on_path(trace.ints("parent"), host)[owner] != NO_ROW
    elsewhere = kernels & ~host[owner]
    named = elsewhere & _named(trace, _KERNEL_WORDS)
    return host, kernels & inside | named, elsewhere & ~named


def _named(trace: Trace, words: tuple[str, ...]) -> BoolArray:
    names = trace.codes("name")
    matches = np.array([any(word in name.lower() for word in words) for name in names.values], np.bool_)
    mask: BoolArray = names.lookup(matches, False)
    return mask


def _native(trace: Trace, request: ViewRequest) -> Iterator[dict[str, Any]]:
    """Yield one dictionary per rank, with the keys of :func:`reduce` and the numbers that Paddle shows. Communication
    calls with the same start and the same end count as one call."""
    chosen, rank = selected(trace, request), trace.ints("rank")
    on_host, on_device, computation = native_communication(trace)
    steps = native_steps(trace, in_steps(trace, request))
    for number in np.unique(rank).tolist():
        mine = chosen & (rank == number)
        both, computing = _union(trace, mine & (on_host | on_device)), _union(trace, mine & computation)
        overlap, alone = intervals.intersect(both, computing), intervals.subtract(both, computing)
        times = map(intervals.length, (_union(trace, steps & (rank == number)), both, computing, overlap, alone))
        host = {"communication": distinct(trace, mine & on_host)}
        computing_calls = int((mine & computation).sum())
        device = {"communication": distinct(trace, mine & on_device), "computation": computing_calls}
        time = dict(zip(PARTS, times, strict=True))
        yield {"rank": number, "host_calls": host, "device_calls": device, "time_ns": time, "bytes": None}


def distinct(trace: Trace, mask: BoolArray) -> int:
    pairs = np.stack([trace.ints("start_ns")[mask], trace.end_ns[mask]])
    return int(np.unique(pairs, axis=1).shape[1])


def _union(trace: Trace, mask: BoolArray) -> intervals.Intervals:
    return intervals.union(trace.ints("start_ns")[mask], trace.end_ns[mask])


COLUMNS: Final = (
    *added_by(GROUPINGS),
    key("part", "Part", words="ids"),
    count("host_calls", "Host calls", "communication: only outermost calls", exact=True, over="steps"),
    count("device_calls", "Device calls", exact=True, over="steps", place=DEVICE),
    duration("time_ns", "Time", over="steps"),
    replace(RATIO, description="share of the step time; without steps, of the time from the first to the last event"),
    size("bytes", "Size", "size of all messages", over="steps"),
)

VIEW = View(
    name="distributed",
    title="Communication and computation",
    description="time of communication between processes, of computation, and of their overlap",
    table=Reduced(reduce, merge, native=True),
    columns=COLUMNS,
    groupings=GROUPINGS,
    explain_empty=lambda trace: message("no communication between processes was recorded"),
)
