"""View ``causes``: the account of the devices in each step, as a tree of causes with their places.

Below each word of the account are its causes, and below some of them the parts of the cause:

- ``compute``: the operator that launched the kernel, or without one the kernel; its kernels.
- ``communication``: the collective. ``copy``: the direction; the operator that copies.
- ``host``: what the host does (:mod:`perfkit_core.causes.host_work`); the innermost host event.
- ``in_flight``: the call that launched the work. ``unlaunched``: the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.base.language.messages import mark, message
from perfkit_core.causes.account import device_segments, host_segments
from perfkit_core.causes.labels import Labels
from perfkit_core.causes.places import places, sampled_lines
from perfkit_core.causes.segments import (
    COMMUNICATION,
    COMPUTE,
    COPY,
    HOST,
    IN_FLIGHT,
    LATENCY,
    TAIL,
    UNLAUNCHED,
    WORDS,
    Segments,
)
from perfkit_core.plugins.contracts import Merged, View, ViewRequest
from perfkit_core.trace.model import columns, schema
from perfkit_core.trace.model.columns import CALLS, DEPTH, FIRST, Share, duration, key, share
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.select import check_groupings
from perfkit_core.views.steps import step_rows
from perfkit_core.views.tables import group, integers, ratio

GROUPINGS: Final = ("step", "device", "rank")
_LEVELS: Final = ("word", "cause", "part")
_NO_DEVICE: Final = -1
_CELLS: Final = ("rank", "device", "step", *_LEVELS, "call", "row", "start_ns", "time_ns")
_LEAST: Final = 0.005
"""Minimum share of the table's time of a row for which the place is looked up."""


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return the tree, with :data:`COLUMNS`. Without steps, the recording is one window. A cause without a step of its
    own, or of an unknown rank, has NA there."""
    check_groupings("causes", request, GROUPINGS)
    labels = Labels(trace)
    parts = [_of_device(trace, request, labels, *pair) for pair in _devices(trace)]
    leaves = {name: np.concatenate([part[name] for part in parts] or [np.empty(0, np.int64)]) for name in _CELLS}
    by = [name for name in ("rank", "device", "step") if name in request.by]
    tree = _Tree(leaves, by)
    whole_ns = int(leaves["time_ns"].sum())
    result = pd.DataFrame({"depth": tree.depth, "cause": tree.texts(labels)})
    for name in by:
        code = tree.keys[name].to_numpy(np.int64)
        result[name] = list(map(labels.device, code)) if name == "device" else integers(code, code >= 0)
    result["calls"], result["total_ns"] = tree.calls, tree.time_ns
    result["ratio"] = ratio(tree.time_ns, whole_ns)
    result["place"] = tree.places(trace, _LEAST * whole_ns)
    return result


def _devices(trace: Trace) -> list[tuple[int, int]]:
    """Return the pairs of a rank and one of its devices. Without any device work, the device is -1, the host."""
    work, rank = trace.rows("kind", *schema.DEVICE_WORK), trace.ints("rank")
    if not work.any():
        return [(number, _NO_DEVICE) for number in np.unique(rank[trace.operators & trace.host]).tolist()]
    devices = np.unique(np.stack([rank[work], trace.codes("device").codes[work]], axis=1), axis=0)
    return [(number, device) for number, device in devices.tolist()]


def _of_device(trace: Trace, request: ViewRequest, labels: Labels, rank: int, device: int) -> dict[str, IntArray]:
    """Return the parts of segments that lie in steps, :data:`_CELLS`: codes of texts, -1 if there is none; ``call``,
    the row of the event that counts as a call; ``row``, that of the host event in which the cause lies."""
    segments = host_segments(trace, rank) if device == _NO_DEVICE else device_segments(trace, rank, device)
    steps = step_rows.chosen_steps(trace, request)
    steps = steps[trace.ints("rank")[steps] == rank]
    begin, end, number = trace.ints("start_ns")[steps], trace.end_ns[steps], trace.ints("step")[steps]
    if not len(step_rows.step_rows(trace)):
        begin, end, number = segments.start[:1], segments.end[-1:], np.array([NO_ROW])
    window, at, width = _inside(segments, begin, end)
    beyond = end - begin - np.bincount(window, width, len(begin)).astype(np.int64)  # before or after all events
    outside = np.flatnonzero(beyond)
    within = {
        "word": segments.word,
        **dict(zip(("cause", "part", "call", "row"), labels.of(segments), strict=True)),
        "start_ns": segments.start,
    }
    cells = {name: np.append(codes[at], np.full(len(outside), NO_ROW)) for name, codes in within.items()}
    cells["word"][len(at) :] = WORDS.index(TAIL)
    np.maximum(cells["start_ns"][: len(at)], begin[window], out=cells["start_ns"][: len(at)])
    count = len(at) + len(outside)
    return {
        "rank": np.full(count, rank), "device": np.full(count, device),
        "step": np.append(number[window], number[outside]), **cells, "time_ns": np.append(width, beyond[outside]),
    }  # fmt: skip


def _inside(segments: Segments, begin: IntArray, finish: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return which segments lie in which windows [begin, finish): (window, segment, width of the overlap)."""
    start, end = segments.start, segments.end
    first, last = np.searchsorted(end, begin, side="right"), np.searchsorted(start, finish)
    count = np.maximum(last - first, 0)
    window = np.repeat(np.arange(len(begin)), count)
    at = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + first[window]
    return window, at, np.minimum(end[at], finish[window]) - np.maximum(start[at], begin[window])


class _Tree:
    """The rows of the tree in preorder, the largest siblings first. Arrays have shape (rows,)."""

    def __init__(self, leaves: Mapping[str, IntArray], by: Sequence[str]) -> None:
        """``leaves`` has the arrays :data:`_CELLS`; ``by`` names those that set trees apart."""
        groups = group({name: leaves[name] for name in (*by, *_LEVELS)})
        keys, self._leaves = groups.keys.astype(np.int64), leaves
        total = groups.sum(leaves["time_ns"])
        nodes, sizes = [], []
        for depth in range(len(_LEVELS)):
            above = group({name: keys[name] for name in (*by, *_LEVELS[: depth + 1])})
            nodes.append(above.code)
            sizes.append(above.sum(total)[above.code])
        # Each node is a row, at the first of its leaves when these are sorted by the sizes of the nodes above them.
        columns = [part for node, size in zip(nodes, sizes, strict=True) for part in (-size, node)]
        order = np.lexsort([*reversed([*(keys[name] for name in by), *columns])])
        rows = []
        for depth, name in enumerate(_LEVELS):
            first = np.zeros(len(order), np.bool_)
            first[np.unique(nodes[depth][order], return_index=True)[1]] = True
            first &= keys[name].to_numpy()[order] != NO_ROW
            rows.append(np.stack([np.flatnonzero(first), np.full(int(first.sum()), depth)]))
        position, self.depth = np.concatenate(rows, axis=1)[:, np.lexsort(np.concatenate(rows, axis=1)[::-1])]
        leaf = order[position]
        self.keys = keys.iloc[leaf].reset_index(drop=True)
        self.time_ns = np.choose(self.depth, [size[leaf] for size in sizes])
        self._row_of = [np.full(node.max(initial=-1) + 1, NO_ROW) for node in nodes]
        for depth, node in enumerate(nodes):
            at = np.flatnonzero(self.depth == depth)
            self._row_of[depth][node[leaf[at]]] = at
        self._row_of = [of[node][groups.code] for of, node in zip(self._row_of, nodes, strict=True)]
        self.calls = sum((self._distinct(of) for of in self._row_of), np.zeros(len(leaf), np.int64))

    def _distinct(self, row: IntArray) -> IntArray:
        """Return the number of distinct calls below each row."""
        call = self._leaves["call"]
        counted = (row != NO_ROW) & (call != NO_ROW)
        pairs = np.sort((row[counted] << 32) | call[counted])  # np.unique is slower
        return np.bincount(pairs[np.diff(pairs, prepend=-1) != 0] >> 32, minlength=len(self.depth)).astype(np.int64)

    def texts(self, labels: Labels) -> list[str]:
        cells = zip(self.depth.tolist(), *(self.keys[name].tolist() for name in _LEVELS), strict=True)
        return [WORDS[word] if depth == 0 else labels.texts[cause if depth == 1 else part]
                for depth, word, cause, part in cells]  # fmt: skip

    def places(self, trace: Trace, least_ns: float) -> list[str | None]:
        """Return the places of the rows with at least ``least_ns``: frames and ranges that were recorded as events, or
        else samples of frames."""
        large = np.append(self.time_ns >= least_ns, False)
        parts = []
        for row in self._row_of:
            leaf = np.flatnonzero(large[row])
            parts.append((row[leaf], leaf))
        row, leaf = (np.concatenate(cells) for cells in zip(*parts, strict=True))
        cells = {name: self._leaves[name][leaf] for name in ("row", "rank", "start_ns", "time_ns")}
        result = places(trace, row, cells["row"], cells["time_ns"], len(self.depth))
        for rank in trace.frame_samples:
            number = NO_ROW if rank == "-" else int(rank)
            of_rank = np.flatnonzero(cells["rank"] == number)
            lines = sampled_lines(
                trace.frame_samples[rank], trace.meta.framework, row[of_rank], cells["start_ns"][of_rank],
                cells["time_ns"][of_rank],
            )  # fmt: skip
            for at, line in lines.items():
                result[at] = result[at] or line
        return result


def _without_single_parts(rows: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    """Return the tree without the parts of causes that have only one. Parts of ``host`` stay: they say what it does."""
    depth = rows["depth"].to_numpy(np.int64)
    word = pd.Series(np.where(depth == 0, rows["cause"], None), dtype=object).ffill()
    single = (depth == 2) & np.append(depth[1:] != 2, True) & (np.append(0, depth[:-1]) == 1) & (word != HOST)
    return rows[~single.to_numpy(np.bool_)].reset_index(drop=True)


PHRASES: Final = (
    (COMPUTE, mark("Computing")),
    (COMMUNICATION, mark("Only communicating")),
    (COPY, mark("Only copying")),
    (HOST, mark("Host work between kernels or operators")),
    (LATENCY, mark("Launch latency")),
    (IN_FLIGHT, mark("Launched, but not started (cause unknown)")),
    (UNLAUNCHED, mark("Before work without a recorded launch")),
    (TAIL, mark("After the last work")),
)
"""How texts show the words of the account."""

COLUMNS: Final = (
    DEPTH,
    key("cause", "Cause", thing="cause", words=PHRASES),
    *columns.added_by(GROUPINGS),
    CALLS,
    duration("total_ns", "Total", over="steps"),
    share("ratio", "Share", Share("total_ns"), description="share of the time of the devices in these steps"),
    columns.text(
        "place",
        "Where",
        "deepest frame or range that covers at least 80% of the time, an estimate if samples show it",
        merge=FIRST,
    ),
)

VIEW = View(
    name="causes",
    title="Where the time went",
    description="every nanosecond of the steps of each device: what runs, or why nothing runs, and what the host does "
    "until it launches the next work; without a device, operators take the place of kernels",
    table=Merged(table, _without_single_parts, siblings=("total_ns",)),
    columns=COLUMNS,
    groupings=GROUPINGS,
    order="total_ns",
    explain_empty=lambda trace: message("neither device work nor operators were recorded"),
)
