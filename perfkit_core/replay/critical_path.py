"""View ``critical_path``: the chain of operators, kernels, copies and waits that determines the step time.

The path is followed backwards through the graph of the replay, from the end of a step to its start: each node starts
when the last node that it waits for has ended, plus the delay between the two. The parts of the path follow each other
without gaps, so their times add up to the step time. An event off the path has slack: the time by which it could take
longer without delaying the step."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import groupby, intervals
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, ByteArray, IntArray
from perfkit_core.base.algorithms.trees import parents, preorder
from perfkit_core.base.language.messages import Text, mark, message
from perfkit_core.base.runtime.compiled import Out, compiled
from perfkit_core.base.system.paths import readable
from perfkit_core.plugins.contracts import Merged, View, ViewRequest
from perfkit_core.replay import build, graph, played_steps
from perfkit_core.replay.device_work import UNEXPLAINED_NS
from perfkit_core.replay.graph import Graph, Replay
from perfkit_core.replay.played_steps import Steps
from perfkit_core.replay.waits import RETURN_NS
from perfkit_core.trace.model import columns
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.columns import DEPTH, MIN, NAME, Share, count, duration, share
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.operators.calls import operator_names
from perfkit_core.views.select import in_steps
from perfkit_core.views.tables import categorical, group, integers, without_categoricals

GROUPINGS: Final = ("step", "rank")
PATH: Final = mark("critical path")
OFF: Final = mark("not on the critical path")
HOST, DEVICE, WAITS = mark("host"), mark("device"), mark("waits")
OUTSIDE: Final = mark("(nothing recorded on the host)")
UNEXPLAINED: Final = mark("unexplained")
UNLAUNCHED: Final = graph.BATCH + 1
"""Cause of the time of a call that waits for device work without a recorded launch, which no edge leads to."""
_WAITS: Final = {
    graph.CHAIN: mark("gap between host events"),
    graph.LAUNCH: mark("launch latency"),
    graph.STREAM: mark("gap on a stream"),
    graph.EVENT: mark("cross-stream wait"),
    graph.WAIT: mark("return from synchronisation"),
    graph.QUEUE: mark("launch queue full"),
    graph.HANDOFF: mark("thread hand-off"),
    graph.MEETING: mark("wait for another rank"),
    graph.BATCH: mark("batch hand-off from the loader"),
    UNLAUNCHED: mark("wait for device work without a recorded launch"),
}
"""Cause of an edge → name of its time on the path. The time of the awaited work itself belongs to this work."""
_LISTED: Final = 6
_NAME_LENGTH: Final = 80
"""Limits of the text about a cycle: the number of events, and the length of a name."""


@dataclass(frozen=True, slots=True)
class Path:
    """The parts of the critical paths of all steps. All arrays have the shape (parts,)."""

    step: IntArray  # index of the step in ``steps``
    node: IntArray  # node whose time the part is; -1 for the time of an edge
    cause: IntArray  # cause of the edge; -1 for the time of a node, and for unexplained time
    time_ns: IntArray
    until_ns: IntArray  # end of the part in the graph's time
    source: IntArray  # node where the edge begins; -1 for the time of a node, and for unexplained time


@once
def replay_of(trace: Trace) -> Replay:
    return build.build(trace)


def contradiction(replay: Replay) -> Text | None:
    """Return which events wait for each other, so that the replay cannot be played. None if it can be played."""
    if replay.graph.edges.in_order:
        return None
    try:
        graph.play(replay.graph)
    except graph.CyclicGraphError as error:
        edges, names = error.cycle, operator_names(replay.trace)
        begins = np.flatnonzero(edges.cause != np.roll(edges.cause, 1))[:_LISTED]  # edges of one cause are one wait
        rows = replay.graph.row[edges.src[begins]]
        events = [str([*names.values, OUTSIDE][code]) for code in np.where(rows < 0, -1, names.codes[rows]).tolist()]
        waits = [_WAITS[cause] for cause in edges.cause[begins].tolist()]
        listed = [
            message("{event} ({wait})", event=readable(event)[:_NAME_LENGTH], wait=message(wait))
            for event, wait in zip(events, waits, strict=True)
        ]
        return message(
            "the replay cannot be played, because these events wait for each other in a cycle: {events:list}",
            events=listed,
        )
    return None


@once
def critical_path(trace: Trace) -> tuple[Steps, Path]:
    """Return the steps of a trace and the parts of their critical paths, from the end of each step to its start."""
    replay = replay_of(trace)
    steps, links = played_steps.steps(replay), replay.graph.edges
    order = np.argsort(links.dst, kind="stable")
    into = np.searchsorted(links.dst[order], np.arange(len(replay.graph) + 1))
    parts = _walked(
        steps.first, steps.after, into, order, links.src, links.lag_ns, links.from_start, links.cause,
        replay.graph.dur_ns, replay.graph.start_ns,
    )  # fmt: skip
    return steps, _with_unlaunched_work(replay, Path(*parts.T))


def _walked(*arrays: IntArray | BoolArray | ByteArray) -> IntArray:
    """Return the parts of all paths, shape (parts, 6), in the order of the fields of :class:`Path`."""
    parts = np.empty((len(arrays[-1]) + 4, len(fields(Path))), np.int64)
    while (used := _walk(*arrays, parts)) < 0:  # type: ignore[call-arg, arg-type]
        parts = np.empty((2 * len(parts), len(fields(Path))), np.int64)
    return parts[:used]


@compiled
def _walk(
    first: IntArray, after: IntArray, into: IntArray, order: IntArray, src: IntArray, lag: IntArray,
    from_start: BoolArray, cause: ByteArray, dur: IntArray, start: IntArray, parts: Out[Annotated[IntArray, 2]],
) -> int:  # fmt: skip
    """Fill ``parts``. Return their number, or -1 if there is too little room."""
    used = 0
    for step in range(len(first)):
        node, now, begin = after[step], start[after[step]], start[first[step]]
        while now > begin:
            if used + 2 > len(parts):
                return -1
            best, latest = -1, 0
            for position in range(into[node], into[node + 1]):
                edge = order[position]
                ends = start[src[edge]] + (0 if from_start[edge] else dur[src[edge]]) + lag[edge]
                if best < 0 or ends > latest:
                    best, latest = edge, ends
            if best < 0:  # nothing explains when this node starts
                _put(parts[used], step, -1, -1, now - begin, now, -1)
                used += 1
                break
            since = start[src[best]] + (0 if from_start[best] else dur[src[best]])
            if now > max(since, begin):
                why = cause[best] if latest >= now else -1
                _put(parts[used], step, -1, why, now - max(since, begin), now, src[best])
                used += 1
            now = min(now, since)
            node = src[best]
            if now > max(start[node], begin):
                _put(parts[used], step, node, -1, now - max(start[node], begin), now, -1)
                used += 1
            now = min(now, start[node])
    return used


@compiled
def _put(part, step, node, cause, time_ns, until_ns, source):  # type: ignore[no-untyped-def]
    part[0], part[1], part[2], part[3], part[4], part[5] = step, node, cause, time_ns, until_ns, source


def _with_unlaunched_work(replay: Replay, path: Path) -> Path:
    """Return the path in which waits for a device are divided: the time in which work without a recorded launch runs on
    this device, and ends within the wait, is a part of its own. Gaps of up to UNEXPLAINED_NS before such work count."""
    played, trace = replay.graph, replay.trace
    work = np.flatnonzero(~played.on_host & (played.row >= 0))
    work = work[trace.ints("launched_by")[played.row[work]] < 0]
    start, end = played.start_ns[work] - UNEXPLAINED_NS, played.start_ns[work] + played.dur_ns[work]
    order = np.argsort(end, kind="stable")
    work, start, end = work[order], start[order], end[order]
    covered = np.zeros(len(path.time_ns), np.int64)
    for part in np.flatnonzero((path.cause == graph.WAIT) & (path.time_ns > RETURN_NS)).tolist():
        since, until = path.until_ns[part] - path.time_ns[part], path.until_ns[part]
        within = slice(*np.searchsorted(end, [since, until], side="right"))
        here = _device(replay, work[within]) == _device(replay, path.source[[part]])
        covered[part] = intervals.length(intervals.union(np.maximum(start[within], since)[here], end[within][here]))
    split = np.flatnonzero(covered)
    added = Path(path.step[split], np.full(len(split), -1), np.full(len(split), UNLAUNCHED), covered[split],
                 path.until_ns[split], path.source[split])  # fmt: skip
    path = replace(path, time_ns=path.time_ns - covered)
    has_time = path.time_ns > 0
    return Path(*(np.append(getattr(path, f.name)[has_time], getattr(added, f.name)) for f in fields(Path)))


def _device(replay: Replay, node: IntArray) -> IntArray:
    """Return a number for the device of each node of device work. Equal devices of two ranks have two numbers."""
    row, device = replay.graph.row[node], replay.trace.codes("device")
    return replay.trace.ints("rank")[row] * len(device.values) + device.codes[row]


def slack(replay: Replay, steps: Steps) -> IntArray:
    """Return the time by which each node could take longer without delaying the end of a step, in ns, shape (nodes,).
    -1 if no end of a step depends on the node."""
    never = np.iinfo(np.int64).max
    latest = np.full(len(replay.graph), never)
    latest[steps.after] = replay.graph.start_ns[steps.after]
    links = replay.graph.edges
    _pull(links.src, links.dst, links.lag_ns, links.from_start, replay.graph.dur_ns, latest)
    free = np.where(latest == never, 0, latest - replay.graph.start_ns)
    return np.where(latest == never, -1, np.maximum(free, 0))


@compiled
def _pull(
    src: IntArray, dst: IntArray, lag: IntArray, from_start: BoolArray, dur: IntArray, latest: Out[IntArray]
) -> None:
    """Lower ``latest``, the latest start of each node. The edges must be in replay order."""
    never = np.iinfo(np.int64).max
    for at in range(len(src)):
        edge = len(src) - 1 - at
        if latest[dst[edge]] < never:
            until = latest[dst[edge]] - lag[edge] - (0 if from_start[edge] else dur[src[edge]])
            if until < latest[src[edge]]:
                latest[src[edge]] = until


def sums(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return the tree of the view for one rank, without shares. Raises UsageError."""
    replay = replay_of(trace)
    if contradiction(replay) is not None:
        return pd.DataFrame()
    steps, path = critical_path(trace)
    chosen = _chosen_steps(trace, request, steps)
    at = np.flatnonzero(chosen[path.step])
    parts = _Rows(path.node[at], path.cause[at], path.step[at], path.time_ns[at], np.full(len(at), -1))
    on_path = np.zeros(len(replay.graph), np.bool_)
    on_path[parts.node[parts.node >= 0]] = True
    rest = _off_path(replay, steps, chosen, on_path)
    both = (_summed(replay, steps, request, rows).assign(root=root) for root, rows in ((PATH, parts), (OFF, rest)))
    return _tree(pd.concat(both, ignore_index=True), request)


def _chosen_steps(trace: Trace, request: ViewRequest, steps: Steps) -> BoolArray:
    if request.steps is None or not len(steps) or steps.number[0] < 0:
        in_steps(trace, request)  # raises UsageError for unknown steps
        return np.ones(len(steps), np.bool_)
    in_steps(trace, request)
    return np.isin(steps.number, np.array(request.steps, np.int64))


def _named(trace: Trace, played: Graph, node: IntArray, cause: IntArray | None = None) -> dict[str, pd.Categorical]:
    """Return the places and the names of nodes, and of edges with a ``cause``, whose node is -1. Shape (len(node),)."""
    names = operator_names(trace)
    row = played.row[node]
    code = np.append(names.codes, -1)[row]
    code[code < 0] = len(names.values)
    place_code = np.where(played.on_host[node], 0, 1)
    if cause is not None:
        waits = len(names.values) + 1 + cause % (len(_WAITS) + 1)
        code, place_code = np.where(node >= 0, code, waits), np.where(node >= 0, place_code, 2)
    values = [*names.values, OUTSIDE, *_WAITS.values(), UNEXPLAINED]
    return {"place": categorical(place_code, (HOST, DEVICE, WAITS)), "name": categorical(code, values)}


@dataclass(frozen=True, slots=True)
class _Rows:
    """Parts of the path, or events that are not on it. All arrays have the same shape."""

    node: IntArray
    cause: IntArray
    step: IntArray  # index of the step
    time_ns: IntArray
    slack_ns: IntArray  # -1 if unknown


def _off_path(replay: Replay, steps: Steps, chosen: BoolArray, on_path: BoolArray) -> _Rows:
    """Return the nodes of events in the chosen steps that are not on the path."""
    played = replay.graph
    node = np.flatnonzero((played.row >= 0) & (played.dur_ns > 0) & ~on_path)
    step = steps.position(replay.trace, played.row[node])
    in_chosen = (step >= 0) & np.append(chosen, False)[step]
    node = node[in_chosen]
    return _Rows(node, np.full(len(node), -1), step[in_chosen], played.dur_ns[node], slack(replay, steps)[node])


def _summed(replay: Replay, steps: Steps, request: ViewRequest, rows: _Rows) -> pd.DataFrame:
    """Return the number, the time and the least slack of the rows with equal names, places and groupings."""
    numbers = {"step": steps.number, "rank": steps.rank}
    keys: dict[str, Any] = {name: numbers[name][rows.step] for name in request.by if name in numbers}
    groups = group(keys | _named(replay.trace, replay.graph, rows.node, rows.cause))
    never = np.iinfo(np.int64).max
    least = groupby.extremes(groups.code, len(groups), np.where(rows.slack_ns < 0, never, rows.slack_ns))[0]
    cells: dict[str, Any] = {
        "parts": groups.calls(),
        "time_ns": groups.sum(rows.time_ns),
        "slack_ns": integers(least, least < never),
    }
    return without_categoricals(groups.keys).assign(**cells)


_LEVELS: Final = ("root", "place", "name")
"""The columns of the names at depths 0, 1 and 2."""


def _tree(rows: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    """Return the rows as a tree: the path and the rest, places below them, and names below the places."""
    by = [name for name in request.by if name in rows]
    levels = []
    for depth in range(len(_LEVELS)):
        sums = rows.groupby([*by, *_LEVELS[: depth + 1]], sort=True).agg(
            parts=("parts", "sum"), time_ns=("time_ns", "sum"), slack_ns=("slack_ns", "min")
        )
        levels.append(sums.reset_index().assign(depth=depth))
    table = pd.concat(levels, ignore_index=True)
    names = table.reindex(columns=list(_LEVELS)).astype(object)
    table["name"] = names.ffill(axis=1).iloc[:, -1]
    keys = [(*of, *path) for of, path in zip(table[by].to_numpy(), names.fillna("").to_numpy(), strict=True)]
    position = {key: row for row, key in enumerate(keys)}
    parent = np.full(len(keys), NO_ROW, np.int64)
    for row, (key, depth) in enumerate(zip(keys, table["depth"], strict=True)):
        if depth:
            parent[row] = position[(*key[: len(by) + depth], *[""] * (len(_LEVELS) - depth))]
    table = table[["depth", "name", *by, "parts", "time_ns", "slack_ns"]]
    return table.iloc[preorder(parent, _weight(table))].reset_index(drop=True)


def _weight(table: pd.DataFrame) -> IntArray:
    """Return the weight by which siblings are sorted, in descending order. The path of a group precedes its rest."""
    roots = table["depth"].to_numpy(np.int64) == 0
    return np.where(roots, -np.arange(len(table)), table["time_ns"].to_numpy(np.int64))


def finished(table: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    """Return the table with the shares of the step time, and siblings sorted by time."""
    if table.empty:
        return pd.DataFrame(columns=[column.name for column in COLUMNS if not column.by])
    table = table.iloc[preorder(parents(table["depth"].to_numpy(np.int64)), _weight(table))].reset_index(drop=True)
    root = (table["depth"] == 0).cumsum()
    on_path = table["name"].where(table["depth"] == 0).ffill() == PATH
    root_ns = table["time_ns"].groupby(root).transform("first")
    ratio = (table["time_ns"] / root_ns.where(root_ns > 0)).astype("Float64")
    return table.assign(ratio=ratio.where(on_path, pd.NA))[[c.name for c in COLUMNS if c.name in {*table, "ratio"}]]


def marks(trace: Trace) -> dict[str, IntArray]:
    """Return the rows of the events on the critical paths, by the names of the rows of the table."""
    if contradiction(replay_of(trace)) is not None:
        return {}
    _, path = critical_path(trace)
    played = replay_of(trace).graph
    on_path = np.zeros(len(played), np.bool_)
    on_path[path.node[path.node >= 0]] = True
    nodes = np.flatnonzero(on_path & (played.row >= 0))
    nodes = nodes[np.argsort(played.row[nodes], kind="stable")]
    rows = played.row[nodes]
    marked: dict[str, IntArray] = {PATH: _distinct(rows)}
    for names in _named(trace, played, nodes).values():
        code, values = pd.factorize(names)
        parts = groupby.parts(code, len(values))
        marked |= {str(value): _distinct(rows[part]) for value, part in zip(values, parts, strict=True)}
    return marked


def _distinct(rows: IntArray) -> IntArray:
    """Return sorted rows without those that occur again."""
    return rows[np.append(True, rows[1:] != rows[:-1])] if len(rows) else rows


COLUMNS: Final = (
    DEPTH,
    replace(NAME, thing="path", words=(PATH, OFF, HOST, DEVICE, WAITS, OUTSIDE, UNEXPLAINED, *_WAITS.values())),
    *columns.added_by(GROUPINGS),
    count("parts", "Intervals", "number of intervals on the path", over="steps"),
    duration("time_ns", "Time", "time on the path; below the second root: off the path", over="steps"),
    share("ratio", "Step time", Share("time_ns"), description="share of the path, which is the step time"),
    duration(
        "slack_ns",
        "Slack",
        "how much longer a call could take without delaying its step; the smallest of all calls",
        merge=MIN,
    ),
)

VIEW = View(
    name="critical_path",
    title="Critical path",
    description="chain of events and waits that determines the step time, summed over steps and ranks; slack of others",
    table=Merged(sums, finished, siblings=("time_ns",)),
    columns=COLUMNS,
    groupings=GROUPINGS,
    explain_empty=lambda trace: contradiction(replay_of(trace)) or message("no events with a duration were recorded"),
)
