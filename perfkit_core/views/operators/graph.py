"""How do the operators of a step follow each other? The dataflow graph: its nodes in producer order, or its edges.

Without ``--step`` it is the graph of the first step; of everything where no steps were recorded.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.errors import UsageError
from perfkit_core.language.messages import message
from perfkit_core.model.columns import (
    DEVICE,
    HOST,
    MODULE,
    NAME,
    OP_NAME,
    PHASE,
    POSITION,
    STEP,
    TID,
    Column,
    count,
    description,
    duration,
    key,
    text,
)
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.views import attribution
from perfkit_core.views.operators import dataflow
from perfkit_core.views.select import selected, step_numbers
from perfkit_core.views.tables import plain, texts

GROUPINGS = ("edge",)


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """One row an outermost operator, by edge one an edge; see :data:`COLUMNS`. NA where there is none."""
    if set(request.by) - set(GROUPINGS):
        raise UsageError(f"the graph cannot be grouped by {request.by[0]!r}", f"known: {', '.join(GROUPINGS)}")
    first = step_numbers(trace)[:1]
    chosen = selected(trace, request if request.steps is not None or not first else replace(request, steps=first))
    rows = np.flatnonzero(chosen & nesting.is_own(dataflow.outermost(trace)))
    return _edges(trace, rows) if request.by else _nodes(trace, rows)


def _nodes(trace: Trace, rows: IntArray) -> pd.DataFrame:
    start = trace.ints("start_ns")[rows]
    result = pd.DataFrame({"node": np.arange(len(rows))})
    for name in ("name", "op_name", "phase", "module"):
        result[name] = texts(trace.codes(name), rows)
    result["step"] = _known(trace.ints("step")[rows])
    result["tid"] = trace.ints("tid")[rows]
    result["start_ns"] = start - start.min(initial=np.iinfo(np.int64).max)
    result["total_cpu_ns"] = trace.ints("dur_ns")[rows]
    number = _numbers(trace, rows)
    work = number[dataflow.nodes_of_device_work(trace)]
    result["device_events"] = np.bincount(work[work != NO_ROW], minlength=len(rows)).astype(np.int64)
    result["total_device_ns"] = attribution.total_device_ns(trace)[rows]
    result["streams"] = _streams(trace, work).reindex(np.arange(len(rows))).to_numpy(object)
    result["after"] = _known(number[dataflow.before_on_thread(trace, rows)])
    neighbours = dataflow.before_on_stream(trace, rows).drop_duplicates("after").set_index("after")["before"]
    result["after_on_stream"] = _known(number[neighbours.reindex(rows).fillna(NO_ROW).to_numpy(np.int64)])
    forward, inferred = dataflow.forward_of(trace, rows)
    result["forward"] = _known(number[forward])
    by = pd.Series(np.where(inferred, "order", "sequence"), dtype=object)
    result["forward_by"] = by.where(forward != NO_ROW, pd.NA)
    return plain(result)


def _edges(trace: Trace, rows: IntArray) -> pd.DataFrame:
    stream = dataflow.before_on_stream(trace, rows)
    parts = {
        "thread": (dataflow.before_on_thread(trace, rows), rows),
        "stream": (stream["before"].to_numpy(np.int64), stream["after"].to_numpy(np.int64)),
        "backward": (dataflow.forward_of(trace, rows)[0], rows),
    }
    number = _numbers(trace, rows)
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


def _numbers(trace: Trace, rows: IntArray) -> IntArray:
    """Number of the node of each row of the trace, -1 for what is none; one item more, for row -1."""
    number = np.full(len(trace) + 1, NO_ROW, np.int64)
    number[rows] = np.arange(len(rows))
    return number


def _streams(trace: Trace, node: IntArray) -> pd.Series[str]:
    """Streams of the device work of each node, as text: "cuda:0/7, cuda:0/20"."""
    work = np.flatnonzero(node != NO_ROW)
    codes = trace.codes("device")
    frame = pd.DataFrame({"node": node[work], "device": codes.codes[work], "stream": trace.ints("stream")[work]})
    frame = frame.drop_duplicates()
    frame["text"] = [f"{codes.values[d]}/{s}" for d, s in zip(frame["device"], frame["stream"], strict=True)]
    return frame.groupby("node")["text"].agg(", ".join)


def _known(numbers: IntArray) -> pd.arrays.IntegerArray:
    return pd.arrays.IntegerArray(np.maximum(numbers, 0), numbers < 0)


COLUMNS = (
    key("node", "Node", description="number"),
    NAME,
    OP_NAME,
    PHASE,
    MODULE,
    STEP,
    TID,
    Column("start_ns", "Start", "ns", POSITION, description="since the first node"),
    duration("total_cpu_ns", "Total CPU", place=HOST),
    count("device_events", "Device events", place=DEVICE),
    duration("total_device_ns", "Total device", place=DEVICE),
    text("streams", "Streams"),
    key("before", "Before", by=("edge",), description="node"),
    description("after", "After", by=("edge",), description="the node before it on its thread; by edge the later one"),
    key("before_name", "Before name", by=("edge",)),
    key("after_name", "After name", by=("edge",)),
    key("edge", "Edge", by=("edge",), description="thread, stream or backward"),
    text("after_on_stream", "After on stream", description="the node before it on the first of its streams"),
    text("forward", "Forward", description="node, of a backward one"),
    text("forward_by", "Forward by", description="sequence or order, see ``dataflow``"),
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
