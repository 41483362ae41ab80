"""View ``graph``: the dataflow graph of a step, as operators in producer order or as edges.

Profilers record no tensors. Edges follow from the order on a thread, the sequence number that a forward operator shares
with its backward node, and the order on a stream. Without sequence numbers, the backward nodes of a canonical operator
are matched to its forward calls in reverse order, if the step has as many of them. Without ``--step`` the graph is that
of the first step, or of the whole recording if it has no steps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms import groupby, nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.language.messages import message
from perfkit_core.model import columns, schema
from perfkit_core.model.trace import Trace, once
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.views import attribution
from perfkit_core.views.operators.calls import outermost
from perfkit_core.views.select import check_groupings, marked, selected, step_numbers, threads
from perfkit_core.views.tables import integers, plain, texts

GROUPINGS: Final = ("edge",)
GRADIENT: Final = "_grad"
"""Suffix of canonical backward operators."""


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per outermost operator, or per edge, with :data:`COLUMNS`. NA: none."""
    check_groupings("graph", request, GROUPINGS)
    first = step_numbers(trace)[:1]
    chosen = selected(trace, request if request.steps is not None or not first else replace(request, steps=first))
    rows = np.flatnonzero(chosen & nesting.is_own(outermost(trace)))
    number = np.full(len(trace) + 1, NO_ROW, np.int64)  # node number of each row; one more item for row -1
    number[rows] = np.arange(len(rows))
    if not request.by:
        return _nodes(trace, rows, number)
    stream = before_on_stream(trace, rows)
    parts = {
        "thread": (before_on_thread(trace, rows), rows),
        "stream": (stream["before"].to_numpy(np.int64), stream["after"].to_numpy(np.int64)),
        "backward": (forward_of(trace, rows)[0], rows),
    }
    frames = [
        pd.DataFrame({"before": number[before], "after": number[after], "edge": edge})
        for edge, (before, after) in parts.items()
    ]
    result = pd.concat(frames, ignore_index=True)
    result = result[(result["before"] != NO_ROW) & (result["after"] != NO_ROW)].reset_index(drop=True)
    names = np.array(trace.codes("name").values, object)[trace.codes("name").codes[rows]]
    result.insert(2, "before_name", names[result["before"].to_numpy(np.int64)])
    result.insert(3, "after_name", names[result["after"].to_numpy(np.int64)])
    return result


def _nodes(trace: Trace, rows: IntArray, number: IntArray) -> pd.DataFrame:
    start, devices = trace.ints("start_ns")[rows], trace.codes("device")
    work_node = number[nodes_of_device_work(trace)]
    work = np.flatnonzero(work_node != NO_ROW)
    streams = pd.DataFrame(
        {"node": work_node[work], "device": devices.codes[work], "stream": trace.ints("stream")[work]}
    ).drop_duplicates()
    streams["text"] = [f"{devices.values[d]}/{s}" for d, s in zip(streams["device"], streams["stream"], strict=True)]
    stream_texts = streams.groupby("node")["text"].agg(", ".join)
    neighbours = before_on_stream(trace, rows).drop_duplicates("after").set_index("after")["before"]
    forward, inferred = forward_of(trace, rows)
    by = pd.Series(np.where(inferred, "order", "sequence"), dtype=object)

    result = pd.DataFrame({"node": np.arange(len(rows))})
    for name in ("name", "op_name", "phase", "module"):
        result[name] = texts(trace.codes(name), rows)
    result["step"] = _known(trace.ints("step")[rows])
    result["tid"] = trace.ints("tid")[rows]
    result["start_ns"] = start - start.min(initial=np.iinfo(np.int64).max)
    result["total_cpu_ns"] = trace.ints("dur_ns")[rows]
    result["device_events"] = np.bincount(work_node[work], minlength=len(rows)).astype(np.int64)
    result["total_device_ns"] = attribution.total_device_ns(trace)[rows]
    result["streams"] = stream_texts.reindex(np.arange(len(rows))).to_numpy(object)
    result["after"] = _known(number[before_on_thread(trace, rows)])
    result["after_on_stream"] = _known(number[neighbours.reindex(rows).fillna(NO_ROW).to_numpy(np.int64)])
    result["forward"] = _known(number[forward])
    result["forward_by"] = by.where(forward != NO_ROW, pd.NA)
    return plain(result)


def _known(numbers: IntArray) -> pd.arrays.IntegerArray:
    return integers(np.maximum(numbers, 0), numbers >= 0)


@once
def nodes_of_device_work(trace: Trace) -> IntArray:
    """Return the row of the outermost operator that launched each device event (-1: none, and for host events)."""
    owner = attribution.owners(trace)
    work = trace.rows("kind", *schema.DEVICE_WORK)
    return np.where(work, np.append(outermost(trace), NO_ROW)[owner], NO_ROW)


def before_on_thread(trace: Trace, rows: IntArray) -> IntArray:
    """Return the previous operator on the thread of each operator, -1 for the first; ``rows`` are in time order."""
    place = threads(trace)
    return _previous(rows, place.code[rows], len(place))


def before_on_stream(trace: Trace, rows: IntArray) -> pd.DataFrame:
    """Return the neighbours on a stream, each pair once: columns before, after (rows of operators)."""
    node = nodes_of_device_work(trace)
    work = np.flatnonzero(_wanted(trace, rows)[node])
    place = [trace.ints("rank")[work], trace.codes("device").codes[work], trace.ints("stream")[work]]
    code, first = groupby.distinct(place, len(work))
    before = np.append(node, NO_ROW)[_previous(work, code, len(first))]
    pairs = pd.DataFrame({"before": before, "after": node[work]})
    return pairs[(pairs["before"] != NO_ROW) & (pairs["before"] != pairs["after"])].drop_duplicates(ignore_index=True)


def _previous(rows: IntArray, place: IntArray, places: int) -> IntArray:
    """Return for each row (ascending) the previous one in the same place, a number below ``places``; -1 for none."""
    order = groupby.stable_order(place, places)
    same = np.zeros(len(rows), np.bool_)
    same[1:] = np.diff(place[order]) == 0
    before = np.full(len(rows), NO_ROW, np.int64)
    before[order] = np.where(same, np.roll(rows[order], 1), NO_ROW)
    return before


def _wanted(trace: Trace, rows: IntArray) -> BoolArray:
    """Return the mask of the rows, with one more item: False for row -1."""
    return np.append(marked(trace, rows), False)


def forward_of(trace: Trace, rows: IntArray) -> tuple[IntArray, BoolArray]:
    """Return the forward operator of each backward operator (-1: unknown), and whether it is inferred from order. Both
    have shape (len(rows),); ``rows`` are outermost operators."""
    forward = _by_sequence(trace, rows)
    if (forward != NO_ROW).any():
        return forward, np.zeros(len(rows), np.bool_)
    # By order: the k-th backward call of an operator in a step belongs to its k-th last forward call.
    codes = trace.codes("op_name")
    name = pd.Series([*codes.values, None], dtype=object).to_numpy()[codes.codes[rows]]
    frame = pd.DataFrame(
        {"row": rows, "name": name, "rank": trace.ints("rank")[rows], "step": trace.ints("step")[rows]}
    )
    frame = frame[frame["name"].notna()]
    is_backward = frame["name"].str.endswith(GRADIENT)
    keys = ["rank", "step", "name"]
    after = frame[is_backward].assign(name=frame["name"].str.removesuffix(GRADIENT))
    before = frame[~is_backward]
    after = after.assign(call=after.groupby(keys).cumcount(), calls=after.groupby(keys)["row"].transform("size"))
    before = before.assign(
        call=before.groupby(keys).cumcount(ascending=False), calls=before.groupby(keys)["row"].transform("size")
    )
    pairs = after.merge(before, on=[*keys, "call", "calls"], suffixes=("", "_forward"))
    inferred = np.full(len(trace), NO_ROW, np.int64)
    inferred[pairs["row"].to_numpy(np.int64)] = pairs["row_forward"].to_numpy(np.int64)
    return inferred[rows], inferred[rows] != NO_ROW


def _by_sequence(trace: Trace, rows: IntArray) -> IntArray:
    """Return the forward operators by sequence number. A backward node gets the current number when it is created, so
    its operator is the last one begun under that number."""
    sequence, root = trace.ints("sequence"), outermost(trace)
    backward = trace.rows("phase", schema.BACKWARD)
    numbered = (sequence >= 0) & (root != NO_ROW)
    ran = np.flatnonzero(numbered & backward & _wanted(trace, rows)[root])
    ran = ran[~pd.Index(root[ran]).duplicated(keep="first")]
    low, high = (
        (sequence[ran].min(), sequence[ran].max()) if len(ran) else (0, -1)
    )  # restrict the lookup below to fewer rows
    made = np.flatnonzero(numbered & ~backward & (sequence >= low) & (sequence <= high))
    both = np.concatenate([ran, made])
    key, first = groupby.distinct([trace.ints("rank")[both], sequence[both]], len(both))
    last = np.full(len(first), NO_ROW, np.int64)
    last[key[len(ran) :]] = np.arange(len(made))  # the last write wins: that of the last row
    forward = np.full(len(trace), NO_ROW, np.int64)
    forward[root[ran]] = np.append(root[made], NO_ROW)[last[key[: len(ran)]]]
    return forward[rows]


COLUMNS: Final = (
    columns.key("node", "Node", description="number"),
    columns.NAME,
    columns.OP_NAME,
    columns.PHASE,
    columns.MODULE,
    columns.STEP,
    columns.TID,
    columns.Column("start_ns", "Start", "ns", columns.POSITION, description="since the first node"),
    columns.duration("total_cpu_ns", "Total CPU", place=columns.HOST),
    columns.count("device_events", "Device events", place=columns.DEVICE),
    columns.duration("total_device_ns", "Total device", place=columns.DEVICE),
    columns.text("streams", "Streams"),
    columns.key("before", "Before", by=("edge",), description="node"),
    columns.description("after", "After", by=("edge",), description="node before it on its thread; by edge the later"),
    columns.key("before_name", "Before name", by=("edge",)),
    columns.key("after_name", "After name", by=("edge",)),
    columns.key("edge", "Edge", by=("edge",), description="thread, stream or backward"),
    columns.text("after_on_stream", "After on stream", description="the node before it on the first of its streams"),
    columns.text("forward", "Forward", description="node, of a backward one"),
    columns.text("forward_by", "Forward by", description="sequence: by number; order: inferred from calls"),
)

VIEW = View(
    name="graph",
    title="Dataflow",
    description="operators of one step in producer order, with what comes before each: on its thread, on its stream, "
    "and the forward operator of a backward node",
    table=table,
    columns=COLUMNS,
    groupings=GROUPINGS,
    page=False,
    explain_empty=lambda trace: message("no operators were recorded"),
)
