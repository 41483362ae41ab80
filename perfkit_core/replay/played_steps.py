"""Step times of a replayed graph, and the share of device work that starts later than the graph explains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.base.algorithms import groupby
from perfkit_core.base.algorithms.arrays import BoolArray, IntArray
from perfkit_core.replay.device_work import UNEXPLAINED_NS
from perfkit_core.replay.graph import BATCH, Graph, Replay
from perfkit_core.trace.model.schema import STEP
from perfkit_core.trace.model.trace import Trace

_WHOLE: Final = 0.9
"""A thread is recorded from begin to end if its events lie in at least this share of the longest time of a thread."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of a recording, arrays of shape (steps,). If no steps were recorded, the time of one thread counts as one
    step with the number -1 (:func:`steps`)."""

    number: IntArray
    rank: IntArray
    first: IntArray  # node that starts when the step starts
    after: IntArray  # node that starts when the step ends
    recorded_ns: IntArray  # recorded time of the step

    def __len__(self) -> int:
        return len(self.number)

    def only(self, mask: BoolArray) -> Steps:
        return Steps(*(getattr(self, name)[mask] for name in self.__slots__))

    def played_ns(self, start_ns: IntArray) -> IntArray:
        """Return the time of each step in ns, given the start of each node."""
        return start_ns[self.after] - start_ns[self.first]

    def lasting_ns(self, replay: Replay, graph: Graph, start_ns: IntArray, period: int = 1) -> IntArray:
        """Return the time that each step takes in a long training run, in ns.

        A replayed step can be shorter than its device work, because the host runs ahead of the device. In a long
        training run, the host is at most a few steps ahead, and a step takes at least ``min(device, recorded)``.
        ``device`` is the time of :meth:`device_ns`. If the host ran ahead while it was recorded, a step takes at least
        ``device``. The time by which the host is then ahead hides what later steps wait for other than the device.

        If the host waits for its device only once in ``period`` steps, the result has the mean of each period
        (:meth:`of_periods`)."""
        least_ns = self.device_ns(replay, graph, start_ns)
        if not self.ahead(replay):
            least_ns = np.minimum(least_ns, self.recorded_ns)
        result = np.empty(len(self), np.int64)
        for rank in np.unique(self.rank).tolist():
            here = np.flatnonzero(self.rank == rank)
            begin, end, least = start_ns[self.first[here]], start_ns[self.after[here]], least_ns[here]
            # ends of the steps: end[i] = max(max(end[i - 1], begin[i]) + least[i], replayed end[i])
            total = np.cumsum(least)
            end = np.maximum.accumulate(np.maximum(begin + least, end) - total) + total
            begin[1:] = np.maximum(begin[1:], end[:-1])
            result[here] = end - begin
        return self.of_periods(result, period)

    def ahead(self, replay: Replay) -> bool:
        """Return whether the host ran ahead of the device while it was recorded, so that most recorded steps are
        shorter than their device work. The time of a recording without steps says nothing about this."""
        if not len(self) or (self.number < 0).any():
            return False
        device_ns = self.device_ns(replay, replay.graph, replay.graph.start_ns)
        return bool(np.median(device_ns) > np.median(self.recorded_ns))

    def usual_ns(self, replay: Replay) -> IntArray:
        """Return the recorded time of each step, but at least the time of its device work if the host ran ahead."""
        return self.lasting_ns(replay, replay.graph, replay.graph.start_ns) if self.ahead(replay) else self.recorded_ns

    def on_device(self, replay: Replay) -> tuple[IntArray, IntArray]:
        """Return when the device begins and ends each step of one rank, in recorded time. It ends a step with the last
        work of the step, and then begins the next step."""
        work, step, _ = self._work(replay, replay.graph)
        row, trace = replay.graph.row[work], replay.trace
        end = np.zeros(len(self), np.int64)
        np.maximum.at(end, step, trace.end_ns[row])
        end = np.maximum.accumulate(end)
        return np.append(trace.ints("start_ns")[row[step == 0]].min(initial=end[0]), end[:-1]), end

    def of_periods(self, step_ns: IntArray, period: int) -> IntArray:
        """Return the mean step time of each period, shape (periods,). A period is ``period`` consecutive steps of a
        rank, counted from the first step. An incomplete period at the end is left out."""
        if period == 1:
            return step_ns
        at = np.searchsorted(np.unique(self.number), self.number) // period
        periods, codes = np.unique(np.stack([self.rank, at]), axis=1, return_inverse=True)
        total = np.zeros(periods.shape[1], np.int64)
        np.add.at(total, codes.ravel(), step_ns)
        complete = np.bincount(codes.ravel(), minlength=len(total)) == period
        mean: IntArray = total[complete] // period
        return mean

    def device_ns(self, replay: Replay, graph: Graph, start_ns: IntArray) -> IntArray:
        """Return how long the busiest device works on each step, in ns, given the start of each node. In a long
        training, no step is shorter. At each time, a device works on the step whose work began first, so that work of
        several streams counts once."""

        def step_work() -> tuple[IntArray, IntArray, IntArray]:
            return self._work(replay, graph)

        same = graph.row is replay.graph.row
        work, step, lane = replay.once("work", step_work, self.number, graph.row) if same else step_work()
        device = replay.once("devices", lambda: _devices(replay))[lane]
        total = np.zeros((len(self), int(device.max(initial=0)) + 1), np.int64)
        for number in np.unique(device).tolist():
            here = np.flatnonzero(device == number)
            here = here[np.argsort(start_ns[work[here]], kind="stable")]  # fast: the work of each stream is in order
            begin = start_ns[work[here]]
            end = begin + graph.dur_ns[work[here]]
            begin[1:] = np.maximum(begin[1:], np.maximum.accumulate(end)[:-1])
            np.add.at(total[:, number], step[here], np.maximum(end - begin, 0))
        most: IntArray = total.max(axis=1)
        return most

    def _work(self, replay: Replay, graph: Graph) -> tuple[IntArray, IntArray, IntArray]:
        """Return the nodes of device work in steps, the position of each node's step, and the number of its stream.

        - Work with a recorded launch belongs to the step of the launch.
        - Work without a recorded launch belongs to the step in which the work started.
        - Exception: work at the start of a stream, before its first work with a recorded launch, belongs to no step.
          This work was launched before the recording."""
        trace = replay.trace
        work = np.flatnonzero(~graph.on_host & (graph.row >= 0))
        row, lane = graph.row[work], graph.lane[work] - graph.threads
        start, rank = trace.ints("start_ns")[row], trace.ints("rank")[row]
        step, launched = self.position(trace, row), trace.ints("launched_by")[row] >= 0
        never = np.iinfo(np.int64).max
        first = np.full(int(lane.max(initial=-1)) + 1, never)
        np.minimum.at(first, lane[launched], start[launched])
        first[first == never] = np.iinfo(np.int64).min  # no launch of the stream was recorded: all its work counts
        lost = np.flatnonzero((step < 0) & ~launched & (start > first[lane]))
        begin, end = replay.recorded_ns(self.first), np.append(replay.recorded_ns(self.after), 0)
        for number in np.unique(rank[lost]):
            here, steps = lost[rank[lost] == number], np.flatnonzero(self.rank == number)
            at = np.append(steps, -1)[np.searchsorted(begin[steps], start[here], side="right") - 1]
            step[here] = np.where((at >= 0) & (start[here] < end[at]), at, -1)
        inside = step >= 0
        return work[inside], step[inside], lane[inside]

    def position(self, trace: Trace, rows: IntArray) -> IntArray:
        """Return the position of the step of each row; -1 if the row lies in no step."""
        if len(self) == 1 and self.number[0] < 0:
            return np.zeros(len(rows), np.int64)
        columns = (self.rank, "rank"), (self.number, "step")
        keys = [np.concatenate([of_steps, trace.ints(name)[rows]]) for of_steps, name in columns]
        code, first = groupby.sorted_codes(keys, len(keys[0]))
        position = np.full(len(first), -1, np.int64)
        position[code[: len(self)]] = np.arange(len(self))
        return position[code[len(self) :]]


def _devices(replay: Replay) -> IntArray:
    """Return the number of the device of each stream, counted from 0 over all ranks, shape (streams,)."""
    trace, graph = replay.trace, replay.graph
    rows = np.flatnonzero(replay.work >= 0)
    device, _ = groupby.distinct([trace.ints("rank")[rows], trace.codes("device").codes[rows]], len(rows))
    lane = graph.lane[replay.work[rows]] - graph.threads
    of_lane = np.zeros(int(lane.max(initial=-1)) + 1, np.int64)
    of_lane[lane] = device
    return of_lane


def steps(replay: Replay) -> Steps:
    """Return the recorded steps. Without steps, the recording is one: of the threads that were recorded from its begin
    to its end, the one with the most events tells its time. Others may only watch, or run backward passes."""
    trace, graph = replay.trace, replay.graph
    rows = np.flatnonzero(trace.host & trace.rows("kind", STEP) & (replay.first >= 0))
    lanes = graph.lane[graph.on_host]
    if len(rows):
        number, rank = trace.ints("step")[rows], trace.ints("rank")[rows]
        first, after = replay.first[rows], replay.after[rows]
    elif len(lanes):
        nodes = np.flatnonzero(graph.on_host)
        nodes = nodes[np.lexsort((graph.start_ns[nodes], lanes))]
        _, begin, count = np.unique(graph.lane[nodes], return_index=True, return_counts=True)
        span_ns = graph.start_ns[nodes[begin + count - 1]] - graph.start_ns[nodes[begin]]
        thread = np.where(span_ns >= _WHOLE * span_ns.max(), count, 0).argmax()
        first, after = nodes[begin[thread], None], nodes[begin[thread] + count[thread] - 1, None]
        number, rank = np.full(1, -1, np.int64), replay.rank[graph.lane[first]]
    else:
        number = rank = first = after = np.empty(0, np.int64)
    return Steps(number, rank, first, after, graph.start_ns[after] - graph.start_ns[first])


_USUAL: Final = 0.1
"""For each cause of edges, such as ``LAUNCH``, the usual lag is this quantile of the recorded lags of its edges."""
_TYPICAL_NS: Final = 5_000
"""This lag is appended to the recorded lags of each cause, so that a single long lag does not become the usual lag."""


def unexplained_ratio(replay: Replay) -> float | None:
    """Return the time of unexplained device work divided by the time of all device work, or None without device work.

    Device work waits for earlier events, such as its launch. One of these events determines when the work starts. The
    lag is the time from this event to the start of the work. Work is unexplained if the lag is more than
    ``UNEXPLAINED_NS`` longer than usual. Work that waits for no event is unexplained, too."""
    graph, links = replay.graph, replay.graph.edges
    work = np.flatnonzero(~graph.on_host)
    total = int(graph.dur_ns[work].sum())
    if not total:
        return None
    begin = graph.start_ns[links.src] + np.where(links.from_start, 0, graph.dur_ns[links.src]) + links.lag_ns
    binds = (begin == graph.start_ns[links.dst]) & ~graph.on_host[links.dst]
    usual = np.zeros(BATCH + 1, np.int64)  # the last cause is BATCH
    for cause in np.unique(links.cause[binds]):
        lags = np.append(links.lag_ns[binds & (links.cause == cause)], _TYPICAL_NS)
        usual[cause] = int(np.quantile(lags, _USUAL))
    unexplained = np.ones(len(graph), np.bool_)
    unexplained[links.dst[binds & (links.lag_ns <= usual[links.cause] + UNEXPLAINED_NS)]] = False
    return int(graph.dur_ns[work][unexplained[work]].sum()) / total
