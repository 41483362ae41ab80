"""Attribution of the kernels of a replayed graph to the operators that were recorded while the graph was captured.

A server captures the kernels of a step into a graph (CUDA graph, HIP graph) once, and replays the graph in later steps.
A recording of these steps has one launch of the graph and its kernels, but none of the operators, because they do not
run. A recording of the capture has the operators and their launches, but none of the kernels.

- A *captured graph* is the sequence of kernel, memcpy and memset calls that one thread makes between the runtime calls
  that begin and end the graph capture.
- The *nodes* of a replay are the device events of one launch of a graph: in the order of their graph node ids, or in
  time order if the ids were not recorded.
- :mod:`perfkit_core.trace.assembly.graph_matching` matches nodes and launches.

The operators, annotations and layer calls around the matched launches become host events below the launch of the graph.
They take no time, because the host does not run them. Their category is :data:`CATEGORY`. Each matched node is launched
by the innermost of these events.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.algorithms import arrays, groupby, nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.base.language.messages import message
from perfkit_core.trace.assembly.draft import with_events
from perfkit_core.trace.assembly.graph_matching import CapturedGraph, Graphs
from perfkit_core.trace.assembly.server_steps import serving_steps
from perfkit_core.trace.assembly.steps import NO_PHASES
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.model.serving_step import CAPTURE, ServingStep
from perfkit_core.trace.model.trace import Trace

CATEGORY: Final = "graph_capture"
"""Category of the events that come from the recording of a capture."""
ATTRIBUTED: Final = "graph-kernels-attributed"
UNATTRIBUTED: Final = "graph-kernels-without-operators"
_GRAPH_LAUNCH: Final = re.compile(r"(?:cuda|hip|cu)GraphLaunch")
_BEGIN: Final = re.compile(r"(?:cuda|hip|cu)StreamBeginCapture")
_END: Final = re.compile(r"(?:cuda|hip|cu)StreamEndCapture")
_CALLS: Final = (schema.RUNTIME, schema.IMPLAUSIBLE)
"""Kinds of the calls of a capture: a call whose duration is wrong was still made."""
_NODE_CALLS: Final = {
    schema.KERNEL: re.compile(r"(?:cuda|hip|cu)(?:Ext)?(?:Module|Cooperative)?Launch(?:Cooperative)?Kernel"),
    schema.MEMCPY: re.compile(r"(?:cuda|hip|cu)Memcpy\w*Async"),
    schema.MEMSET: re.compile(r"(?:cuda|hip|cu)Memset\w*Async"),
}
"""Kind of a node → runtime calls that add such a node to the graph."""
_AROUND: Final = (schema.OPERATOR, schema.COMMUNICATION, schema.ANNOTATION, schema.FORWARD)
"""Kinds of host events that are copied from the recording of the capture."""
_KERNEL: Final = r'"kernel" ?: ?(?P<value>"(?:[^"\\]|\\.)*")'
_NODE_ID: Final = r'"graph node id" ?: ?(?P<value>\d{1,18}) ?[,}]'
_GRAPH_ID: Final = r'"graph[ _]id" ?: ?(?P<value>\d{1,18}) ?[,}]'


@once
def graph_launches(trace: Trace) -> BoolArray:
    """Return the mask of the runtime calls that launch a graph, shape (rows,)."""
    return calls_named(trace, _GRAPH_LAUNCH)


def calls_named(trace: Trace, pattern: re.Pattern[str], *kinds: str) -> BoolArray:
    """Return the mask of the host events of these kinds (default: runtime) whose name begins with a pattern, shape
    (rows,)."""
    names, rows = trace.codes("name"), _host_rows(trace, *(kinds or (schema.RUNTIME,)))
    codes, mask = names.codes[rows], np.zeros(len(trace), np.bool_)
    used = np.flatnonzero(np.bincount(codes[codes >= 0])).tolist()  # few of the names in the trace
    matching = [code for code in used if pattern.match(names.values[code])]
    if matching:
        mask[rows] = np.isin(codes, matching)
    return mask


@once
def _host_rows(trace: Trace, *kinds: str) -> IntArray:
    return np.flatnonzero(trace.host & trace.rows("kind", *kinds))


@once
def replayed(trace: Trace) -> tuple[BoolArray, BoolArray]:
    """Return the masks of the device work that graphs launched, and of the part of it that belongs to an operator."""
    of_graph, of_operator = np.zeros((2, len(trace)), np.bool_)
    graphs = graph_launches(trace)
    if graphs.any():
        work = np.flatnonzero(trace.rows("kind", *schema.DEVICE_WORK) & (trace.ints("launched_by") != NO_ROW))
        launch, parent = trace.ints("launched_by")[work], trace.ints("parent")
        graph = nesting.nearest_on_path(parent, graphs)[launch]
        inner = nesting.nearest_on_path(parent, trace.operators)[launch]
        of_graph[work] = graph != NO_ROW
        of_operator[work] = (graph != NO_ROW) & (inner > graph)
    return of_graph, of_operator


def about_graphs(trace: Trace, sources: Sequence[str] = ()) -> tuple[Finding, ...]:
    """Return a note on the share of the device time of replayed graphs that belongs to operators."""
    if not graph_launches(trace).any():
        return ()
    of_graph, of_operator = replayed(trace)
    total = int(trace.ints("dur_ns")[of_graph].sum())
    if not total:
        return ()
    share = int(trace.ints("dur_ns")[of_operator].sum()) / total
    values = {"share": share, "time": total, "launches": int(graph_launches(trace).sum())}
    if not sources and share:  # a file that perfkit wrote has the operators
        return ()
    if not sources:
        text = message(
            "{time:ns} of device work was launched by replays of graphs, which record no operators: to attribute it "
            "to operators and layers, record the capture of the graphs, too (--graph-capture FILE)",
            **values,
        )
        return (Finding(UNATTRIBUTED, text, note=True),)
    text = message(
        "{share:ratio} of the device time of graph replays ({time:ns}) is attributed to the operators that the "
        "captures recorded: {sources:list}",
        **values, sources=list(sources),
    )  # fmt: skip
    return (Finding(ATTRIBUTED, text, note=share > 0),)


def captured_graphs(trace: Trace, batch: int | None = None) -> list[CapturedGraph]:
    """Return the graphs that a recording of captures contains, in time order. ``batch`` is the batch size of those
    whose range does not say it."""
    calls = {kind: calls_named(trace, pattern, *_CALLS) for kind, pattern in _NODE_CALLS.items()}
    ran = np.zeros(len(trace) + 1, np.bool_)  # calls with device work ran at once and are no nodes
    ran[trace.ints("launched_by")] = True
    begins, ends = (np.flatnonzero(calls_named(trace, pattern, *_CALLS)) for pattern in (_BEGIN, _END))
    nodes = np.flatnonzero(np.logical_or.reduce(list(calls.values())) & ~ran[:-1])
    kind_of = {row: kind for kind, mask in calls.items() for row in np.flatnonzero(mask).tolist()}
    name_of = dict(zip(nodes.tolist(), _kernel_names(trace, nodes), strict=True))
    captures = _captures(trace, begins, ends, nodes)
    graphs = []
    for (begin, launches), size in zip(captures, _batches(trace, [begin for begin, _ in captures], batch), strict=True):
        kinds = tuple(kind_of[row] for row in launches.tolist())
        names = tuple(name_of[row] for row in launches.tolist())
        graphs.append(CapturedGraph(trace, begin, launches, kinds, names, size))
    return graphs


def _captures(trace: Trace, begins: IntArray, ends: IntArray, nodes: IntArray) -> list[tuple[int, IntArray]]:
    """Return the row that begins each capture, and the nodes before the next row of the same thread that ends one."""
    rows = np.concatenate([begins, ends, nodes])
    thread, _ = groupby.distinct([trace.ints(name)[rows] for name in ("pid", "tid")], len(rows))
    _, moment = np.unique(trace.ints("start_ns")[rows], return_inverse=True)
    key = thread * (len(rows) + 1) + moment  # sorts by thread, then by start
    begin, other = key[: len(begins)], key[len(begins) :]
    end, node = np.sort(other[: len(ends)]), np.sort(other[len(ends) :])
    nodes = nodes[np.argsort(other[len(ends) :], kind="stable")]
    until = np.append(end, np.iinfo(np.int64).max)[np.searchsorted(end, begin, "right")]
    complete = until // (len(rows) + 1) == thread[: len(begins)]
    first, last = np.searchsorted(node, begin, "right"), np.searchsorted(node, until, "left")
    return [(int(begins[at]), nodes[first[at] : last[at]]) for at in np.flatnonzero(complete).tolist()]


def captured(trace: Trace, calls: IntArray) -> BoolArray:
    """Return the mask of the ``calls`` that a graph capture records, so that they launch nothing. The beginning or the
    end of the capture may lie outside the recording."""
    begins, ends = (np.flatnonzero(calls_named(trace, pattern, *_CALLS)) for pattern in (_BEGIN, _END))
    if not len(begins) + len(ends):
        return np.zeros(len(calls), np.bool_)
    rows = np.concatenate([begins, ends, calls])
    thread, _ = groupby.distinct([trace.ints(name)[rows] for name in ("rank", "pid", "tid")], len(rows))
    order = np.lexsort((trace.ints("start_ns")[rows], thread))
    mark = np.repeat([1, -1, 0], [len(begins), len(ends), len(calls)])[order]  # begin, end, call
    first = np.append(True, np.diff(thread[order]) > 0)
    position = np.arange(len(rows))
    # the last mark before each call, and the next mark after it, on its thread
    before = np.maximum.accumulate(np.where((mark != 0) | first, position, 0))
    after = np.minimum.accumulate(np.where((mark != 0) | np.append(first[1:], True), position, len(rows))[::-1])[::-1]
    inside = np.empty(len(rows), np.bool_)
    inside[order] = (mark[before] > 0) | (mark[after] < 0)
    return inside[len(begins) + len(ends) :]


def graph_ids(trace: Trace, nodes: IntArray) -> IntArray:
    """Return the id of the graph of each node, -1 if it was not recorded, shape (len(nodes),)."""
    ids: IntArray = pc.fill_null(_arguments(trace, nodes, _GRAPH_ID).cast(pa.int64()), -1).to_numpy()
    return ids


def _kernel_names(trace: Trace, launches: IntArray) -> list[str | None]:
    texts = _arguments(trace, launches, _KERNEL).to_pylist()
    return [None if text is None else json.loads(text) for text in texts]


def _arguments(trace: Trace, rows: IntArray, pattern: str) -> pa.Array:
    """Return the group ``value`` of a pattern in the args of each row, or null."""
    return pc.struct_field(pc.extract_regex(trace.pick("args", rows).cast(pa.string()), pattern), "value")


def _batches(trace: Trace, begins: Sequence[int], batch: int | None) -> list[int | None]:
    """Return the batch size of each capture: that of the last range which started before and has not ended."""
    rows, steps = serving_steps(trace)
    start, end = trace.ints("start_ns"), trace.end_ns
    captures = [(row, step) for row, step in zip(rows.tolist(), steps, strict=True) if step.kind == CAPTURE][::-1]
    around: list[tuple[int, ServingStep]] = []
    sizes = []
    for begin in begins:
        while captures and start[captures[-1][0]] <= start[begin]:
            around.append(captures.pop())
        while around and end[around[-1][0]] <= start[begin]:
            around.pop()
        sizes.append(around[-1][1].requests if around else batch)
    return sizes


def attributed(trace: Trace, graphs: Sequence[CapturedGraph], sources: Sequence[str]) -> Trace:
    """Return the trace with the operators of the captured graphs below the launches of the replays."""
    captured, kinds, names = Graphs(graphs), trace.codes("kind"), trace.codes("name")
    tokens, step, rank = _tokens(trace), trace.ints("step"), trace.ints("rank")
    matches: dict[tuple[bytes, bytes, int | None], tuple[CapturedGraph, IntArray] | None] = {}
    replays = []
    for launch, nodes in _replays(trace):
        of_kind, of_name = kinds.codes[nodes], names.codes[nodes]
        batch = tokens.get((int(rank[launch]), int(step[launch])))
        replay = of_kind.tobytes(), of_name.tobytes(), batch
        if replay not in matches:
            texts = [[column.values[code] for code in codes] for column, codes in ((kinds, of_kind), (names, of_name))]
            matches[replay] = captured.best(texts[0], texts[1], batch)
        match = matches[replay]
        if match is not None:
            replays.append((launch, nodes, *match))
    result = _with_operators(trace, replays) if replays else trace
    quality = tuple(finding for finding in result.quality if finding.code != UNATTRIBUTED)
    return result.with_quality(quality).with_findings(*about_graphs(result, sources))


def _replays(trace: Trace) -> Iterator[tuple[int, IntArray]]:
    """Yield the row of each launch of a graph, and the rows of its nodes, in the order of the nodes."""
    launched_by, start = trace.ints("launched_by"), trace.ints("start_ns")
    work = np.flatnonzero(trace.rows("kind", *schema.DEVICE_WORK) & graph_launches(trace)[launched_by])
    work = work[launched_by[work] != NO_ROW]
    ids = pc.fill_null(_arguments(trace, work, _NODE_ID).cast(pa.int64()), -1)
    order = np.lexsort((work, start[work], ids.to_numpy(zero_copy_only=False), launched_by[work]))
    work = work[order]
    for part in np.split(work, np.flatnonzero(np.diff(launched_by[work])) + 1):
        if len(part):
            yield int(launched_by[part[0]]), part


def _tokens(trace: Trace) -> dict[tuple[int, int], int | None]:
    """Return the number of tokens of each step, by rank and step. None: its name does not say it."""
    rows, steps = serving_steps(trace)
    keys = zip(trace.ints("rank")[rows].tolist(), trace.ints("step")[rows].tolist(), strict=True)
    # with several ranges of one step, the first counts
    return {key: step.tokens for key, step in reversed(list(zip(keys, steps, strict=True))) if key[1] >= 0}


_Replay = tuple[int, IntArray, CapturedGraph, IntArray]
"""The row of the launch, the rows of the nodes, the captured graph, and the index of each node's launch in it."""


def _with_operators(trace: Trace, replays: Sequence[_Replay]) -> Trace:
    equal: dict[tuple[int, bytes], list[_Replay]] = defaultdict(list)
    for replay in replays:
        equal[id(replay[2]), replay[3].tobytes()].append(replay)
    parents, launched_by, tables = [trace.ints("parent")], trace.ints("launched_by").copy(), []
    texts = {name: _Texts(trace, name) for name in ("module", "phase")}
    count = len(trace)
    for group in equal.values():
        launches, nodes = np.array([replay[0] for replay in group]), np.array([replay[1] for replay in group])
        captured = group[0][2].trace
        rows, inner = _around(*group[0][2:])
        first = count + len(rows) * np.arange(len(group))[:, None]  # index of the first event of each replay
        launched_by[nodes] = np.where(inner >= 0, first + inner, launches[:, None])
        for name, of_nodes in texts.items():
            values = captured.pick(name, rows).to_pylist()
            of_nodes.put(nodes, [None if event < 0 else values[event] for event in inner.tolist()])
        above = nesting.nearest_above(captured.ints("parent"), _mask(captured, rows))[rows]
        parents.append(np.where(above < 0, launches[:, None], first + np.searchsorted(rows, above)).ravel())
        tables.append(_events(trace, launches, captured, rows))
        count += len(rows) * len(group)
    recorded = trace.with_columns(**{name: of_nodes.column() for name, of_nodes in texts.items()})
    launched_by = np.append(launched_by, np.full(count - len(trace), NO_ROW))
    return _with_phases(with_events(recorded, pa.concat_tables(tables), np.concatenate(parents), launched_by))


def _with_phases(trace: Trace) -> Trace:
    """Return the trace with the phase ``other`` for events outside all phases, if it has phases."""
    phase, other = _Texts(trace, "phase"), (trace.ints("self_ns") >= 0) | (trace.ints("launched_by") != NO_ROW)
    rows = np.flatnonzero(other & (trace.codes("phase").codes < 0))
    if not trace.has_values("phase") or not len(rows):
        return trace
    phase.put(rows[None], [schema.OTHER] * len(rows))
    quality = tuple(finding for finding in trace.quality if finding.code != NO_PHASES)
    return trace.with_columns(phase=phase.column()).with_quality(quality)


class _Texts:
    """A text column of a trace in which some cells are replaced."""

    def __init__(self, trace: Trace, name: str) -> None:
        codes = trace.codes(name)
        self._codes, self._values = codes.codes.copy(), list(codes.values)

    def put(self, rows: IntArray, texts: Sequence[str | None]) -> None:
        """Replace the cells of ``rows``, shape (replays, nodes), by one text for each node. None keeps the cell."""
        for text in dict.fromkeys(texts):
            if text is not None:
                if text not in self._values:
                    self._values.append(text)
                self._codes[rows[:, [other == text for other in texts]]] = self._values.index(text)

    def column(self) -> pa.ChunkedArray:
        return arrays.texts(self._codes, self._values)


def _around(graph: CapturedGraph, match: IntArray) -> tuple[IntArray, IntArray]:
    """Return the rows of the events around the matched launches, and the index of each node's innermost event in these
    rows (-1 if none)."""
    trace = graph.trace
    after = trace.ints("start_ns") >= trace.ints("start_ns")[graph.begin]
    inside = trace.host & trace.rows("kind", *_AROUND) & after
    nearest = nesting.nearest_on_path(trace.ints("parent"), inside)
    inner = np.where(match >= 0, nearest[graph.launches[match]], NO_ROW)
    innermost = _mask(trace, inner[inner >= 0])
    used = innermost | nesting.holds(trace.ints("parent"), innermost)
    rows = np.flatnonzero(inside & used)
    return rows, np.where(inner >= 0, np.searchsorted(rows, inner), NO_ROW)


def _mask(trace: Trace, rows: IntArray) -> BoolArray:
    mask = np.zeros(len(trace), np.bool_)
    mask[rows] = True
    return mask


def _events(trace: Trace, launches: IntArray, captured: Trace, rows: IntArray) -> pa.Table:
    """Return the captured events as events of each replay: at the start of its launch, without duration."""
    count = len(rows) * len(launches)
    copied = ("name", "kind", "module", "phase", "shapes", "dtypes", "stack", "flops", "op_name", "args", "bytes")
    of_launch = ("start_ns", "rank", "pid", "tid", "device", "step")
    of_event, at = np.tile(rows, len(launches)), np.repeat(launches, len(rows))
    cells = {name: captured.pick(name, of_event) for name in copied}
    cells |= {name: trace.pick(name, at) for name in of_launch}
    cells["category"] = pa.array([CATEGORY] * count)
    cells |= dict.fromkeys(("dur_ns", "self_ns", "parent", "launched_by"), pa.array(np.zeros(count, np.int64)))

    def column(field: pa.Field) -> pa.Array:
        values = cells.get(field.name, pa.nulls(count, field.type))
        if pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(values.type):
            values = values.dictionary_encode()
        return values.cast(field.type)

    return pa.table([column(field) for field in schema.SCHEMA], schema=schema.SCHEMA)
