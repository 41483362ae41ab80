"""How much of the time do the processes talk to each other, and how much of that does computation hide?

Communication (see ``collectives``) and computation (see ``activity``) are unions over the threads, streams and devices
of a rank; overlap is what both have in common, exposed communication the rest of the communication. Where steps were
recorded, what runs within them counts, whenever it was launched, as in the view ``partition``. Ranks are added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms import intervals, nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.algorithms.intervals import Intervals
from perfkit_core.errors import UsageError
from perfkit_core.language.messages import message
from perfkit_core.model.columns import DEVICE, RATIO, added_by, count, duration, size, words
from perfkit_core.model.schema import COMMUNICATION, KERNEL, OPERATOR
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import Reduction, View, ViewRequest
from perfkit_core.views.attribution import native_owners
from perfkit_core.views.communication.communicating import Communication, communication
from perfkit_core.views.communication.instances import instances
from perfkit_core.views.select import accounted, in_steps, ranks, selected, span
from perfkit_core.views.steps.activity import Activities, activities, covered_ns
from perfkit_core.views.steps.step_rows import native_steps
from perfkit_core.views.tables import ratio

GROUPINGS = ("rank",)


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Rows: step, communication, computation, overlap, exposed_communication; none where nothing communicates. See
    :data:`COLUMNS`. Computation has device_calls, or host_calls where no device work was recorded."""
    return _table(_measure(trace, request), request)


def reduce(trace: Trace, request: ViewRequest) -> list[dict[str, Any]]:
    """The numbers of one rank, as plain values."""
    return [{"rank": rank, **asdict(one)} for rank, one in _measure(trace, request).items()]


def merge(partials: Sequence[list[dict[str, Any]]], request: ViewRequest) -> pd.DataFrame:
    """The table of any number of ranks."""
    rows = [dict(row) for partial in partials for row in partial]
    return _table({row.pop("rank"): Measured(**row) for row in rows}, request)


def _measure(trace: Trace, request: ViewRequest) -> dict[int | None, Measured]:
    return (_native_measured if request.native else _measured)(trace, request)


def _table(ranks: dict[int | None, Measured], request: ViewRequest) -> pd.DataFrame:
    unknown = set(request.by) - set(GROUPINGS)
    if unknown:
        raise UsageError(f"{VIEW.name} cannot be grouped by {sorted(unknown)[0]!r}", "known: rank")
    if not any(rank.communicates for rank in ranks.values()):
        return part_table({}, by_rank="rank" in request.by)
    return part_table(ranks if "rank" in request.by else {None: total(list(ranks.values()))}, "rank" in request.by)


def _measured(trace: Trace, request: ViewRequest) -> dict[int | None, Measured]:
    chosen, here, rank = accounted(trace, request), in_steps(trace, request), trace.ints("rank")
    talk, acts = communication(trace), activities(trace)
    return {one: _of_rank(acts, talk, chosen, span(trace, here & (rank == one)), one) for one in ranks(trace).tolist()}


def _of_rank(acts: Activities, talk: Communication, chosen: BoolArray, steps: Intervals, rank: int) -> Measured:
    trace = acts.trace
    sets = acts.of(rank, chosen)
    talking, computing = (intervals.intersect(some, steps) for some in (sets.communication, sets.compute))
    overlap, exposed = intervals.intersect(talking, computing), intervals.subtract(talking, computing)
    rows = np.flatnonzero(chosen & (talk.calls | talk.device | acts.compute))
    rows = rows[trace.ints("rank")[rows] == rank]
    rows = rows[covered_ns(steps, trace.ints("start_ns")[rows], trace.end_ns[rows]) > 0]
    host = {"communication": _count(talk.calls[rows])}
    on_device = {"communication": _count(talk.device[rows])}
    (on_device if acts.on_device else host)["computation"] = _count(acts.compute[rows])
    times = map(intervals.length, (steps, talking, computing, overlap, exposed))
    here = chosen & (trace.ints("rank") == rank)
    return Measured(host, on_device, dict(zip(PARTS, times, strict=True)), _bytes(trace, rows, talk, here, steps))


def _bytes(trace: Trace, rows: IntArray, talk: Communication, here: BoolArray, steps: Intervals) -> int | None:
    """The message of each collective once; of other communication what its events tell. None where nothing does."""
    sized = instances(trace)
    sized = sized[sized["bytes"].notna()]
    at = sized["row"].to_numpy(np.int64)
    start = sized["start_ns"].to_numpy(np.int64)
    counted = here[at] & (covered_ns(steps, start, start + sized["dur_ns"].to_numpy(np.int64)) > 0)
    others = rows[(talk.device | talk.host)[rows] & ~np.isin(rows, at)]
    calls = talk.call[at]
    others = others[~np.isin(talk.call[others], calls[calls != NO_ROW])]
    own = trace.ints("bytes", -1)[others]
    moved = np.concatenate([sized["bytes"].to_numpy(np.int64)[counted], own[own >= 0]])
    return int(moved.sum()) if len(moved) else None


def _count(mask: BoolArray) -> int:
    return int(mask.sum())


PARTS: Final = ("step", "communication", "computation", "overlap", "exposed_communication")


@dataclass(frozen=True, slots=True)
class Measured:
    """Of one rank, by part: calls on the host and on the device, and time; bytes of the communication."""

    host_calls: Mapping[str, int]
    device_calls: Mapping[str, int]
    time_ns: Mapping[str, int]
    bytes: int | None

    @property
    def communicates(self) -> bool:
        """Whether there is any communication."""
        return bool(self.host_calls["communication"] or self.device_calls["communication"])


def total(ranks: Sequence[Measured]) -> Measured:
    """The ranks added up."""
    known = [rank.bytes for rank in ranks if rank.bytes is not None]
    return Measured(
        _added([rank.host_calls for rank in ranks]),
        _added([rank.device_calls for rank in ranks]),
        _added([rank.time_ns for rank in ranks]),
        sum(known) if known else None,
    )


def part_table(ranks: Mapping[int | None, Measured], by_rank: bool) -> pd.DataFrame:
    """[rank (null where unknown),] part, host_calls, device_calls, time_ns, ratio, bytes."""
    rows = [
        {
            "rank": None if rank == -1 else rank,
            "part": part,
            "host_calls": one.host_calls.get(part),
            "device_calls": one.device_calls.get(part),
            "time_ns": one.time_ns[part],
            "ratio": float(ratio(one.time_ns[part], one.time_ns["step"])),
            "bytes": one.bytes if part == "communication" else None,
        }
        for rank, one in ranks.items()
        for part in PARTS
    ]
    table = pd.DataFrame(rows, columns=["rank", "part", *_TYPES]).astype({"rank": "Int64", **_TYPES})
    return table if by_rank else table.drop(columns="rank")


_TYPES: Final = {"host_calls": "Int64", "device_calls": "Int64", "time_ns": "Int64", "ratio": "Float64",
                 "bytes": "Int64"}  # fmt: skip


def _added(parts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Of each part the sum over the ranks that know it: computation is counted on the host or on the device."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: sum(part.get(name, 0) for part in parts) for name in names}


WORDS: Final = ("allreduce", "broadcast", "rpc")
_KERNEL_WORDS: Final = ("nccl", "xccl")


@dataclass(frozen=True, slots=True)
class NativeCommunication:
    """Masks of shape (rows,): communication on the host and on a device, and computation."""

    host: BoolArray
    device: BoolArray
    computation: BoolArray


def native_communication(trace: Trace) -> NativeCommunication:
    """Which events Paddle counts as what."""
    operators = trace.rows("kind", OPERATOR) & _named(trace, WORDS)
    host = trace.host & (trace.rows("kind", COMMUNICATION) | operators)
    owner = native_owners(trace)
    kernels = trace.rows("kind", KERNEL) & (owner != NO_ROW)
    inside = nesting.nearest_on_path(trace.ints("parent"), host)[owner] != NO_ROW
    elsewhere = kernels & ~host[owner]
    named = elsewhere & _named(trace, _KERNEL_WORDS)
    return NativeCommunication(host, kernels & inside | named, elsewhere & ~named)


def _native_measured(trace: Trace, request: ViewRequest) -> dict[int | None, Measured]:
    """The numbers of each rank as Paddle's Distribution Summary counts them.

    Communication: host events of kind communication, operators whose name holds one of ``_WORDS``
    (``broadcast_tensors`` too), every kernel launched inside either, and kernels named nccl or xccl. Computation: the
    other kernels, also those launched below a communication event but not by it directly: they count as both. Calls
    are distinct (start, end) pairs.
    """
    chosen, rank = selected(trace, request), trace.ints("rank")
    talk, steps = native_communication(trace), native_steps(trace, in_steps(trace, request))
    masks = {one: rank == one for one in np.unique(rank).tolist()}
    return {one: _of_native_rank(trace, talk, chosen & mine, steps & mine) for one, mine in masks.items()}


def distinct(trace: Trace, mask: BoolArray) -> int:
    """Number of distinct (start, end) pairs."""
    pairs = np.stack([trace.ints("start_ns")[mask], trace.end_ns[mask]])
    return int(np.unique(pairs, axis=1).shape[1])


def _of_native_rank(trace: Trace, talk: NativeCommunication, chosen: BoolArray, steps: BoolArray) -> Measured:
    both = _union(trace, chosen & (talk.host | talk.device))
    compute = _union(trace, chosen & talk.computation)
    overlap = intervals.intersect(both, compute)
    alone = intervals.subtract(both, compute)
    times = map(intervals.length, (_union(trace, steps), both, compute, overlap, alone))
    host = {"communication": distinct(trace, chosen & talk.host)}
    device = {
        "communication": distinct(trace, chosen & talk.device),
        "computation": int((chosen & talk.computation).sum()),
    }
    return Measured(host, device, dict(zip(PARTS, times, strict=True)), None)


def _union(trace: Trace, mask: BoolArray) -> intervals.Intervals:
    return intervals.union(trace.ints("start_ns")[mask], trace.end_ns[mask])


def _named(trace: Trace, words: tuple[str, ...]) -> BoolArray:
    names = trace.codes("name")
    known = np.array([any(word in name.lower() for word in words) for name in names.values], np.bool_)
    found: BoolArray = names.lookup(known, False)
    return found


COLUMNS = (
    *added_by(GROUPINGS),
    words("part", "Part"),
    count("host_calls", "Host calls", exact=True, per_step=True, description="of communication the outermost ones"),
    count("device_calls", "Device calls", exact=True, per_step=True, place=DEVICE),
    duration("time_ns", "Time", per_step=True),
    replace(RATIO, description="of the steps; without steps, of the extent of the events"),
    size("bytes", "Size", per_step=True, description="of the messages"),
)

VIEW = View(
    name="distributed",
    title="Communication and computation",
    description="time of communication between processes, of computation, and of both at once",
    table=table,
    columns=COLUMNS,
    groupings=GROUPINGS,
    explain_empty=lambda trace: message("no communication between processes was recorded"),
    native=True,
    reduction=Reduction(reduce, merge),
)
