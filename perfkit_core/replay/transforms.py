"""Transforms of a replay: changes of its graph, described by plain data.

``rows`` are rows of the trace. A transform changes the nodes of its rows. With ``below``, it also changes the nodes of
the host events inside these rows, and the nodes of the device work that these events launched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, Protocol

import numpy as np

from perfkit_core.base.algorithms import intervals, nesting
from perfkit_core.base.algorithms.arrays import BoolArray, IntArray
from perfkit_core.base.language.messages import Text
from perfkit_core.base.system import machine
from perfkit_core.replay.device_work import Queued, device_work
from perfkit_core.replay.graph import BATCH, CHAIN, HANDOFF, LAUNCH, STREAM, WAIT, Graph, Replay, edges
from perfkit_core.views.select import marked


class Case(Enum):
    """Selects one value of each uncertain number. ``SHORT`` gives the shortest steps, ``LONG`` the longest."""

    SHORT = "p10"
    LIKELY = "p50"
    LONG = "p90"


@dataclass(frozen=True, slots=True)
class Quantity:
    """An uncertain number, described by three percentiles. It is a time in ns, a factor or a count."""

    low: float  # value with the shortest steps
    mid: float
    high: float  # value with the longest steps
    source: Text  # "recorded", "calibrated on this machine", or a citation

    @property
    def ends(self) -> tuple[float, float, float]:
        return self.low, self.mid, self.high


Number = int | float | Quantity


def value(number: Number, case: Case) -> float:
    """Return the value that ``case`` selects. A number that is no Quantity is exact, and has one value in all cases."""
    if not isinstance(number, Quantity):
        return number
    return {Case.SHORT: number.low, Case.LIKELY: number.mid, Case.LONG: number.high}[case]


class Transform(Protocol):
    """A change of the graph, described by the fields of a frozen dataclass. It must be hashable: use ``eq=False``."""

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        """Return the changed graph. Existing nodes keep their numbers, and new nodes follow."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class InCases:
    """A ``change`` that applies only in some ``cases``, because the recording does not show whether it takes effect."""

    change: Transform
    cases: tuple[Case, ...]

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        return self.change.apply(replay, graph, case) if case in self.cases else graph


_EDGE_BYTES: Final = 100
"""Memory of a changed graph for each edge, including that of its creation."""


def transformed(replay: Replay, changes: Sequence[Transform], case: Case = Case.LIKELY) -> Graph:
    """Return the graph after all changes, applied in the given order. Raises UsageError if it needs too much memory."""
    graph = replay.graph
    if changes:
        machine.require(_EDGE_BYTES * len(graph.edges), "the replay of a change")
    for change in changes:
        graph = change.apply(replay, graph, case)
    return graph


def chosen_rows(replay: Replay, rows: IntArray, below: bool) -> BoolArray:
    """Return a mask over all rows of the trace that is True for ``rows``. With ``below``, it is also True for events
    inside them and for the device work that these events launched."""

    def mask_of_rows() -> BoolArray:
        trace = replay.trace
        mask = marked(trace, rows)
        if below:
            mask |= nesting.lies_in(trace.ints("parent"), mask)
            launched_by = trace.ints("launched_by")
            mask |= (launched_by >= 0) & mask[launched_by]
        return mask

    return replay.once("chosen rows", mask_of_rows, rows, below)


def nodes_of(replay: Replay, graph: Graph, rows: IntArray, below: bool) -> BoolArray:
    """Return the mask of the nodes whose event is in :func:`chosen_rows`, shape (nodes,)."""

    def mask_of_nodes() -> BoolArray:
        mask: BoolArray = (graph.row >= 0) & chosen_rows(replay, rows, below)[graph.row]
        return mask

    same = graph.row is replay.graph.row
    return replay.once("nodes", mask_of_nodes, rows, below, graph.row) if same else mask_of_nodes()


def inclusive_ns(replay: Replay, graph: Graph, rows: IntArray, inside: BoolArray) -> IntArray:
    """Return, for each event of ``rows``, the time of all nodes of the event and of the events that it contains, shape
    (len(rows),). Nodes outside the mask ``inside`` are left out. No event of ``rows`` may contain another one."""
    owner = np.full(len(replay.trace), -1, np.int64)
    owner[rows] = np.arange(len(rows))
    owner = nesting.first_on_path(replay.trace.ints("parent"), owner)
    total = np.zeros(len(rows), np.int64)
    nodes = np.flatnonzero(inside)
    np.add.at(total, owner[graph.row[nodes]], graph.dur_ns[nodes])
    return total


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """Events take ``factor`` times as long on the host, on the device, or on both."""

    rows: IntArray
    factor: Number
    below: bool = True
    host: bool = True
    device: bool = True
    most_ns: IntArray | None = None  # maximum time of each row after the change; None: no maximum

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        chosen = np.flatnonzero(nodes_of(replay, graph, self.rows, self.below))
        chosen = chosen[np.where(graph.on_host[chosen], self.host, self.device)]
        dur = graph.dur_ns.copy()
        dur[chosen] = np.rint(dur[chosen] * value(self.factor, case))
        if self.most_ns is not None:
            most = np.full(len(replay.trace), np.iinfo(np.int64).max)
            most[self.rows] = self.most_ns
            dur[chosen] = np.minimum(dur[chosen], most[graph.row[chosen]])
        return replace(graph, dur_ns=dur)


@dataclass(frozen=True, slots=True, eq=False)
class Insert:
    """Rows take longer: host events by ``host_ns``, inserted at their beginning, and device work by ``device_ns``.
    ``host_ns`` may be an array with a time for each row."""

    rows: IntArray
    host_ns: Number | IntArray = 0
    device_ns: Number = 0

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        dur = graph.dur_ns.copy()
        for nodes, added in ((replay.first[self.rows], self.host_ns), (replay.work[self.rows], self.device_ns)):
            if isinstance(added, np.ndarray):
                np.add.at(dur, nodes[nodes >= 0], added[nodes >= 0])
            else:
                np.add.at(dur, nodes[nodes >= 0], round(value(added, case)))
        return replace(graph, dur_ns=dur)


@dataclass(frozen=True, slots=True, eq=False)
class Shorten:
    """Multiplies the time of host threads within ``gaps`` by ``factor``. The caller chooses gaps in which no thread of
    the rank runs an operator, a runtime call or the data loader."""

    gaps: Mapping[int, intervals.Intervals]  # disjoint intervals of each rank, on the clock of this rank
    factor: Number

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        dur = graph.dur_ns.copy()
        nodes, within = replay.once("shorten", lambda: self._within(replay), self.gaps, replay.graph.dur_ns)
        less = np.rint(within * (1 - value(self.factor, case))).astype(np.int64)
        dur[nodes] -= np.minimum(less, dur[nodes])
        return replace(graph, dur_ns=dur)

    def _within(self, replay: Replay) -> tuple[IntArray, IntArray]:
        """Return the nodes in the gaps, and how much of their time lies in a gap. Nodes that other transforms add are
        excluded."""
        parts = []
        for rank, gaps in self.gaps.items():
            nodes = replay.hosts(rank)
            start = replay.recorded_ns(nodes)
            within = intervals.covered_ns(gaps, start, start + replay.graph.dur_ns[nodes])
            parts.append((nodes[within > 0], within[within > 0]))
        empty = np.empty(0, np.int64)
        nodes, times = (np.concatenate(part) for part in zip((empty, empty), *parts, strict=True))
        return nodes, times


@dataclass(frozen=True, slots=True, eq=False)
class Remove:
    """Events and the work that they launched do not take place, and nothing waits for them.

    A removed event keeps a node of duration 0 and its edges with the causes CHAIN, LAUNCH and STREAM, so that the other
    events keep their order."""

    rows: IntArray
    below: bool = True

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        rows = chosen_rows(replay, self.rows, self.below)
        gone = nodes_of(replay, graph, self.rows, self.below)
        links = graph.edges
        caused = np.flatnonzero((links.owner >= 0) & (links.cause > max(CHAIN, LAUNCH, STREAM)))
        dropped = caused[rows[links.owner[caused]]]
        if len(dropped):
            remaining = np.ones(len(links), np.bool_)
            remaining[dropped] = False
            links = links.only(remaining)
        lag, launch, stream = links.lag_ns.copy(), *(np.flatnonzero(links.cause == cause) for cause in (LAUNCH, STREAM))
        lag[launch[gone[links.dst[launch]]]] = 0
        stream = stream[gone[links.src[stream]]]
        lag[stream] = np.minimum(lag[stream], 0)
        return replace(graph, dur_ns=np.where(gone, 0, graph.dur_ns), edges=replace(links, lag_ns=lag))


@dataclass(frozen=True, slots=True, eq=False)
class Unblock:
    """Calls no longer wait for device work. An example is a copy from pinned memory with ``non_blocking``. Each call
    takes its recorded time without the wait."""

    rows: IntArray
    most_ns: Number | None = None  # maximum time of each call after the change; None: no maximum

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        calls = chosen_rows(replay, self.rows, False)
        links = graph.edges
        waits = (links.cause == WAIT) & (links.owner >= 0) & calls[links.owner]
        dur = graph.dur_ns
        if self.most_ns is not None:
            most = round(value(self.most_ns, case))
            dur = np.where(nodes_of(replay, graph, self.rows, False) & graph.on_host, np.minimum(dur, most), dur)
        return replace(graph, dur_ns=dur, edges=links.only(~waits))


LAUNCH_NS = 5_000
"""Time from a launch to its work on an idle stream, typical of CUDA devices."""


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """Operators run on the host instead of a device (``to_host``), or on a device instead of the host.

    The recorded times and device work of the operators are removed. On a device, each operator gets new work on the
    busiest stream of its rank, after the work that is queued there."""

    rows: IntArray
    to_host: bool
    host_ns: Number  # host time of each operator: its execution if `to_host`, otherwise its launch
    device_ns: Number = 0  # time of the new device work of each operator
    copies_gone: IntArray | None = None  # calls of copies and synchronisations that become unnecessary
    copies_added: int = 0  # number of new copies before each operator
    copy_ns: Number = 0  # time for which each new copy blocks the host

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        graph = Remove(self.rows).apply(replay, graph, case)
        if self.copies_gone is not None:
            graph = Remove(self.copies_gone).apply(replay, graph, case)
        host_ns = value(self.host_ns, case) + self.copies_added * value(self.copy_ns, case)
        graph = Insert(self.rows, host_ns).apply(replay, graph, case)
        if self.to_host:
            return graph
        trace, rows, work = replay.trace, self.rows, device_work(replay.trace)
        queued, start_ns = Queued(trace, work), trace.ints("start_ns")[rows]
        new, lanes = np.arange(len(graph), len(graph) + len(rows)), np.zeros(len(rows), np.int64)
        links = [edges(LAUNCH, replay.first[rows], new, LAUNCH_NS, rows, True)]
        for rank in np.unique(trace.ints("rank")[rows]):
            here = np.flatnonzero(trace.ints("rank")[rows] == rank)
            streams, counts = np.unique(work.lane[queued.rank == rank], return_counts=True)
            if not len(streams):
                continue
            lane = int(streams[counts.argmax()])
            lanes[here] = lane
            before, behind = queued.ends_last(lane, start_ns[here]), queued.next_after(lane, start_ns[here])
            links += [
                edges(STREAM, replay.work[work.row[before[before >= 0]]], new[here[before >= 0]]),
                edges(STREAM, new[here[behind >= 0]], replay.work[work.row[behind[behind >= 0]]]),
            ]
        dur_ns = np.full(len(rows), round(value(self.device_ns, case)))
        return graph.with_nodes(dur_ns, rows, graph.threads + lanes, start_ns, links)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Several launches become one launch, for example a captured graph or a fused kernel. The new launch takes place
    when the first of its ``rows`` begins."""

    rows: IntArray  # host events that contain the recorded launches
    host_ns: Number  # host time of each new launch
    gap_ns: Number = 1000  # maximum gap before each piece of device work of a new launch
    group: IntArray | None = None  # rows with equal numbers become one launch; None: all rows become one launch

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        inside = nodes_of(replay, graph, self.rows, True)
        dur = np.where(inside & graph.on_host, 0, graph.dur_ns)
        firsts = self.rows[:1]
        if self.group is not None:
            order = np.lexsort((replay.trace.ints("start_ns")[self.rows], self.group))
            firsts = self.rows[order][np.diff(self.group[order], prepend=self.group.min() - 1) != 0]
        dur[replay.first[firsts]] += round(value(self.host_ns, case))
        links = graph.edges
        work = inside & ~graph.on_host
        gap = round(value(self.gap_ns, case))
        lag = np.where(work[links.dst] & (links.cause == STREAM), np.minimum(links.lag_ns, gap), links.lag_ns)
        return replace(graph, dur_ns=dur, edges=replace(links, lag_ns=lag))


@dataclass(frozen=True, slots=True, eq=False)
class Overlap:
    """A new thread runs host events ``rows``, each when the original thread reaches it. The original thread goes on."""

    rows: IntArray
    until: IntArray  # for each event of ``rows``, the event that waits for its end, -1 if none
    factor: Number = 1.0

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        first, after = replay.first[self.rows], replay.first[self.until]
        inside = nodes_of(replay, graph, self.rows, True) & graph.on_host
        total = inclusive_ns(replay, graph, self.rows, inside)
        new = np.arange(len(graph), len(graph) + len(self.rows))
        waits = self.until >= 0
        links = [edges(CHAIN, first, new, from_start=True), edges(CHAIN, new[waits], after[waits])]
        dur = np.rint(total * value(self.factor, case)).astype(np.int64)
        graph = replace(graph, dur_ns=np.where(inside, 0, graph.dur_ns))
        return graph.with_nodes(dur, self.rows, graph.lane[first], graph.start_ns[first], links)


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """In each rank, ``workers`` processes make the batches. Each worker makes up to ``ahead`` batches in advance. The
    first batch of the recording is ready when the training asks for it.

    - ``batch_ns`` is None if the thread that runs the steps made the recorded batches. A worker then needs the same
      time for each batch as this thread. Getting a ready batch takes ``handover_ns``.
    - Otherwise, ``batch_ns`` is the time in which one worker makes one batch. If the
      batch is ready, the wait inside a loader call is at most ``handover_ns``. The rest of the call is unchanged."""

    rows: IntArray  # events in which the training gets its batches, sorted by time within each rank
    workers: Number
    batch_ns: Number | None = None  # time to make a batch; None: the recorded time
    handover_ns: Number = 0
    ahead: int = 2
    not_ahead: IntArray = field(default_factory=lambda: np.empty(0, np.int64))  # rows that wait for their whole batch

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        ranks = replay.trace.ints("rank")
        rows = self.rows[np.argsort(ranks[self.rows], kind="stable")]
        rank = ranks[rows]
        inside = nodes_of(replay, graph, self.rows, True) & graph.on_host
        workers = value(self.workers, case)
        handover = round(value(self.handover_ns, case))
        waits = (graph.edges.cause == BATCH) & np.isin(graph.edges.owner, rows)
        first, after = replay.first[rows], replay.after[rows]
        if self.batch_ns is None:
            making_ns = inclusive_ns(replay, graph, rows, inside)
            dur = np.where(inside, 0, graph.dur_ns)
            dur[first] += handover
        else:
            making_ns = np.full(len(rows), value(self.batch_ns, case))
            dur, waiting = graph.dur_ns.copy(), graph.edges.dst[waits] - 1
            dur[waiting] = np.minimum(dur[waiting], handover)
        new = np.arange(len(graph), len(graph) + len(rows))
        begins, asked = np.append(True, rank[1:] != rank[:-1])[: len(rows)], np.isin(rows, self.not_ahead)
        every = np.where(begins, 0, np.rint(making_ns / workers).astype(np.int64))
        every = np.where(asked, np.rint(making_ns).astype(np.int64), every)
        begins |= asked
        free = max(round(self.ahead * workers), 1)
        follows, fills = np.flatnonzero(~begins), free + np.flatnonzero(rank[free:] == rank[:-free])
        links = [
            edges(CHAIN, first[begins], new[begins], from_start=True),
            edges(CHAIN, new[follows - 1], new[follows]),
            edges(HANDOFF, new, after),
            edges(HANDOFF, after[fills - free], new[fills], from_start=True),
        ]
        graph = replace(graph, dur_ns=dur, edges=graph.edges.only(~waits))
        return graph.with_nodes(every, np.full(len(new), -1), graph.lane[first], graph.start_ns[first], links)
