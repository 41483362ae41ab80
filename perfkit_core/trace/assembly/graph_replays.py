"""Replays of graphs whose nodes were partly not recorded.

A replay of a graph always has the same nodes. So nodes were lost if another replay of the same graph has more. They
were probably lost if the device is idle for long next to a fill or a copy of the replay: these prepare kernels, and no
host delays them. Between kernels, a function on the host may have run as a node.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.base.algorithms import groupby, nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.trace.assembly.graph_capture import graph_ids, graph_launches
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.trace import Trace

_GAP_NS: Final = 50_000
"""Shortest idle time within a replay that shows lost nodes. In complete recordings of V100, B300 and MI300X devices,
the next node starts after at most 14 µs."""
_GAP_SHARE: Final = 0.1
"""Idle time shows lost nodes only from this share of the replay on."""


@dataclass(frozen=True, slots=True)
class Replays:
    """The replays of the graphs of a trace."""

    count: int
    incomplete: IntArray  # rows of the launches of incomplete replays
    nodes: int  # number of nodes that incomplete replays lack, as far as other replays show it
    gap_ns: int  # idle time before nodes of incomplete replays
    spans: tuple[tuple[IntArray, IntArray], ...]  # rows of launches, and times at which their work is missing

    @classmethod
    def of(cls, trace: Trace) -> Replays:
        graphs, none = graph_launches(trace), np.empty(0, np.int64)
        if not graphs.any():
            return cls(0, none, 0, 0, ())
        work = np.flatnonzero(trace.rows("kind", *schema.DEVICE_WORK))  # sorted by start within a rank
        work = work[np.lexsort((trace.ints("start_ns")[work], trace.ints("rank")[work]))]
        launch = np.append(nesting.nearest_on_path(trace.ints("parent"), graphs), NO_ROW)[trace.ints("launched_by")]
        nodes = work[launch[work] != NO_ROW]
        launches, replay = np.unique(launch[nodes], return_inverse=True)
        lacking = _lacking(trace, launches, nodes, replay)
        gap_launch, begin_ns, end_ns = _gaps(trace, work, launch[work])
        at = np.searchsorted(launches, gap_launch)
        idle = np.bincount(at, end_ns - begin_ns, len(launches)).astype(np.int64)
        first, last = groupby.extremes(replay, len(launches), trace.ints("start_ns")[nodes])[0], np.zeros_like(launches)
        np.maximum.at(last, replay, trace.end_ns[nodes])
        np.minimum.at(first, at, begin_ns)
        idle[idle < _GAP_SHARE * (last - first)] = 0
        incomplete = launches[(lacking > 0) | (idle > 0)]
        visible = idle[at] > 0
        spans = (
            (incomplete, trace.ints("start_ns")[incomplete]),
            (launches[lacking > 0], first[lacking > 0]),
            (gap_launch[visible], begin_ns[visible]),
            (gap_launch[visible], end_ns[visible] - 1),
        )
        return cls(len(launches), incomplete, int(lacking.sum()), int(idle.sum()), spans)


def _lacking(trace: Trace, launches: IntArray, nodes: IntArray, replay: IntArray) -> IntArray:
    """Return how many nodes each replay lacks compared with the largest replay of the same graph, shape (launches,).
    ``replay`` is the position in ``launches`` for each of ``nodes``. Two replays are of the same graph if the ids of
    their graphs are equal. Without ids, they have the same launch site, the smaller set of nodes is a part of the
    larger one, and the larger one is at least as frequent."""
    lacking = np.zeros(len(launches), np.int64)
    if len(launches) < 2:
        return lacking
    code = trace.codes("name").codes[nodes].astype(np.int64)
    # equal multisets of names have equal sums of random numbers
    weight = np.random.default_rng(0).integers(-(1 << 62), 1 << 62, len(trace.codes("name").values) + 1)
    names = groupby.sums(replay, len(launches), weight[code])
    graph = graph_ids(trace, nodes[groupby.first_rows(replay, len(launches))])
    site = _launch_sites(trace, launches, graph)
    _, first = groupby.distinct([site, names], len(launches))
    for number in np.flatnonzero(np.bincount(site[first]) > 1).tolist():
        same = np.flatnonzero(site == number)
        sets = {at: tuple(sorted(Counter(code[replay == at].tolist()).items())) for at in same.tolist()}
        frequency = Counter(sets.values())
        for at, part in sets.items():
            larger = [
                (Counter(dict(candidate)) - Counter(dict(part))).total()
                for candidate, times in frequency.items()
                if Counter(dict(part)) <= Counter(dict(candidate)) and (graph[at] >= 0 or times >= frequency[part])
            ]
            lacking[at] = max(larger)
    return lacking


def _launch_sites(trace: Trace, launches: IntArray, graph: IntArray) -> IntArray:
    """Return a number for the site of each launch of a graph: its rank and the id of its graph, or else the names of
    the innermost and outermost event around it, and how many launches with these names precede it in its step."""
    names, parent, step = trace.codes("name").codes, trace.ints("parent"), trace.ints("step")[launches]
    around = trace.host & ~trace.rows("kind", schema.STEP)
    rank, inner, outer = trace.ints("rank")[launches], parent[launches], nesting.outermost(parent, around)[launches]
    code = np.where(graph < 0, np.stack([names[inner], names[outer]]).astype(np.int64), 0)
    key, first = groupby.distinct([rank, step, *code], len(launches))
    order = groupby.stable_order(key, len(first))
    before = np.empty_like(key)
    before[order] = np.arange(len(key)) - np.searchsorted(key[order], key[order])
    site, _ = groupby.distinct([rank, graph, *code, np.where((graph < 0) & (step >= 0), before, 0)], len(launches))
    return site


def _gaps(trace: Trace, work: IntArray, launch: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return the idle times of the devices of a rank next to fills and copies of a replay, as launches, begins and
    ends. ``work`` is all device work, sorted by rank and start, and ``launch`` its launch of a graph, or -1. Only times
    count in which the host does not delay the node: after a node of the same replay, or after work that ended after the
    launch."""
    start, end, rank = trace.ints("start_ns")[work], trace.end_ns, trace.ints("rank")[work]
    fills = trace.rows("kind", schema.MEMSET, schema.MEMCPY)[work]
    launches, begins, ends = [], [], []
    for first, last in zip(*_bounds(rank), strict=True):
        idle_from = np.maximum.accumulate(end[work[first:last]])[:-1]
        after = launch[first + 1 : last]
        pending = (after != NO_ROW) & ((after == launch[first : last - 1]) | (idle_from >= end[after]))
        pending &= fills[first + 1 : last] | fills[first : last - 1]
        long = np.flatnonzero(pending & (start[first + 1 : last] - idle_from >= _GAP_NS))
        launches.append(after[long])
        begins.append(idle_from[long])
        ends.append(start[first + 1 : last][long])
    return np.concatenate(launches), np.concatenate(begins), np.concatenate(ends)


def _bounds(rank: IntArray) -> tuple[list[int], list[int]]:
    edges = [0, *(np.flatnonzero(np.diff(rank)) + 1).tolist(), len(rank)]
    return edges[:-1], edges[1:]
