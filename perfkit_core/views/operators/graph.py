"""View ``graph``: the dataflow graph of a step. Its nodes are the outermost operators, in time order.

Profilers do not record tensors, so the edges are taken from other data:

- the order of operators on a thread,
- the order of device work on a stream,
- the sequence number that a forward operator shares with its backward node. If none were recorded, the backward calls
  of a canonical operator are matched to its forward calls in reverse order. A step must have equally many of both.

Without ``--step``, the graph shows the first step, or the whole recording if no step was recorded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import groupby, nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray, filled
from perfkit_core.base.language.messages import message
from perfkit_core.base.operators.names import GRADIENT_SUFFIX
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.trace.model import columns, schema
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import attribution
from perfkit_core.views.operators.calls import outermost
from perfkit_core.views.select import marked, selected, step_numbers, threads
from perfkit_core.views.tables import integers, texts, without_categoricals

GROUPINGS: Final = ("edge",)


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per outermost operator (per edge if grouped by edge), with :data:`COLUMNS`. Raises UsageError."""
    first = step_numbers(trace)[:1]
    chosen = selected(trace, request if request.steps is not None or not first else replace(request, steps=first))
    rows = np.flatnonzero(chosen & nesting.is_own(outermost(trace)))
    number = np.full(len(trace) + 1, NO_ROW, np.int64)  # node of each event; number[NO_ROW] is NO_ROW
    number[rows] = np.arange(len(rows))
    if not request.by:
        return _nodes(trace, rows, number)
    stream = before_on_stream(trace, rows)
    edges = {
        "thread": (before_on_thread(trace, rows), rows),
        "stream": (stream["before"].to_numpy(np.int64), stream["after"].to_numpy(np.int64)),
        "backward": (forward_of(trace, rows)[0], rows),
    }
    frames = [
        pd.DataFrame({"before": number[before], "after": number[after], "edge": edge})
        for edge, (before, after) in edges.items()
    ]
    result = pd.concat(frames, ignore_index=True)
    result = result[(result["before"] != NO_ROW) & (result["after"] != NO_ROW)].reset_index(drop=True)
    names = np.array(trace.codes("name").values, object)[trace.codes("name").codes[rows]]
    result.insert(2, "before_name", names[result["before"].to_numpy(np.int64)])
    result.insert(3, "after_name", names[result["after"].to_numpy(np.int64)])
    return result


def _nodes(trace: Trace, rows: IntArray, number: IntArray) -> pd.DataFrame:
    start, devices = trace.ints("start_ns")[rows], trace.codes("device")
    node = number[nodes_of_device_work(trace)]
    work = np.flatnonzero(node != NO_ROW)
    node = node[work]
    streams = pd.DataFrame({"node": node, "device": devices.codes[work], "stream": trace.ints("stream")[work]})
    streams = streams.drop_duplicates()
    streams["text"] = [f"{devices.values[d]}/{s}" for d, s in zip(streams["device"], streams["stream"], strict=True)]
    earliest = _work_on_streams(trace, rows).drop_duplicates("after").set_index("after")["before"]
    forward, inferred = forward_of(trace, rows)
    forward_by = pd.Series(np.where(inferred, "order", "sequence"), dtype=object)

    result = pd.DataFrame({"node": np.arange(len(rows))})
    for name in ("name", "op_name", "phase", "module"):
        result[name] = texts(trace.codes(name), rows)
    result["step"] = _nullable(trace.ints("step")[rows])
    result["tid"] = trace.ints("tid")[rows]
    result["start_ns"] = start - start.min(initial=np.iinfo(np.int64).max)
    result["total_cpu_ns"] = trace.ints("dur_ns")[rows]
    result["device_events"] = np.bincount(node, minlength=len(rows)).astype(np.int64)
    result["total_device_ns"] = attribution.total_device_ns(trace)[rows]
    result["streams"] = streams.groupby("node")["text"].agg(", ".join).reindex(result.index).to_numpy(object)
    result["after"] = _nullable(number[before_on_thread(trace, rows)])
    result["after_on_stream"] = _nullable(number[earliest.reindex(rows).fillna(NO_ROW).to_numpy(np.int64)])
    result["forward"] = _nullable(number[forward])
    result["forward_by"] = forward_by.where(forward != NO_ROW, pd.NA)
    return without_categoricals(result)


def _nullable(numbers: IntArray) -> pd.arrays.IntegerArray:
    return integers(np.maximum(numbers, 0), numbers >= 0)


@once
def nodes_of_device_work(trace: Trace) -> IntArray:
    """Return the row of the outermost operator that launched each device event, shape (rows,). The row is -1 for host
    events and for device work that no operator launched."""
    owner = attribution.owners(trace)
    work = trace.rows("kind", *schema.DEVICE_WORK)
    return np.where(work, np.append(outermost(trace), NO_ROW)[owner], NO_ROW)


def before_on_thread(trace: Trace, rows: IntArray) -> IntArray:
    """Return the row of the previous operator on the thread for each of the ascending ``rows``, -1 if there is none."""
    all_threads = threads(trace)
    return _previous(rows, all_threads.code[rows], len(all_threads))


def before_on_stream(trace: Trace, rows: IntArray) -> pd.DataFrame:
    """Return the distinct pairs of operators in ``rows`` whose device work is adjacent on a stream. The columns
    ``before`` and ``after`` have the event rows of the operators."""
    pairs = _work_on_streams(trace, rows)
    return pairs[(pairs["before"] != NO_ROW) & (pairs["before"] != pairs["after"])].drop_duplicates(ignore_index=True)


def _work_on_streams(trace: Trace, rows: IntArray) -> pd.DataFrame:
    """Return a row for each piece of device work of the operators in ``rows``, in order of time: its operator
    (``after``), and the operator of the previous work on the stream (``before``, NO_ROW if there is none)."""
    node = nodes_of_device_work(trace)
    work = np.flatnonzero(np.append(marked(trace, rows), False)[node])
    streams = [trace.ints("rank")[work], trace.codes("device").codes[work], trace.ints("stream")[work]]
    code, first = groupby.distinct(streams, len(work))
    before = np.append(node, NO_ROW)[_previous(work, code, len(first))]
    return pd.DataFrame({"before": before, "after": node[work]})


def _previous(rows: IntArray, group: IntArray, groups: int) -> IntArray:
    """Return, for each of the ascending ``rows``, the previous one with an equal number in ``group``, -1 if none."""
    order = groupby.stable_order(group, groups)
    same = np.append(False, np.diff(group[order]) == 0)[: len(rows)]
    before = np.full(len(rows), NO_ROW, np.int64)
    before[order] = np.where(same, np.roll(rows[order], 1), NO_ROW)
    return before


def forward_of(trace: Trace, rows: IntArray) -> tuple[IntArray, BoolArray]:
    """Return ``(forward, inferred)``, both of shape (len(rows),). ``forward`` is the row of each backward operator's
    forward operator (else -1). ``inferred`` is True if the match follows from the order of calls."""
    forward = _forward_by_sequence(trace, rows)
    if (forward != NO_ROW).any():
        return forward, np.zeros(len(rows), np.bool_)
    # In each step, the first backward call of an operator belongs to its last forward call, and so on.
    name = pd.Series(texts(trace.codes("op_name"), rows)).astype(object)
    frame = pd.DataFrame({"row": rows, "name": name, **{key: trace.ints(key)[rows] for key in ("rank", "step")}})
    frame = frame[frame["name"].notna()]
    is_backward = frame["name"].str.endswith(GRADIENT_SUFFIX)
    keys = ["rank", "step", "name"]
    backward = frame[is_backward].assign(name=frame["name"].str.removesuffix(GRADIENT_SUFFIX))
    sides = [
        side.assign(call=side.groupby(keys).cumcount(ascending), calls=side.groupby(keys)["row"].transform("size"))
        for side, ascending in ((backward, True), (frame[~is_backward], False))
    ]
    pairs = sides[0].merge(sides[1], on=[*keys, "call", "calls"], suffixes=("", "_forward"))
    inferred = filled(len(trace), NO_ROW)
    inferred[pairs["row"].to_numpy(np.int64)] = pairs["row_forward"].to_numpy(np.int64)
    return inferred[rows], inferred[rows] != NO_ROW


def _forward_by_sequence(trace: Trace, rows: IntArray) -> IntArray:
    """Return the row of each backward operator's forward operator, -1 if unknown, shape (len(rows),). Both have the
    same sequence number. If several forward operators have this number, the last one to start is returned, because
    the backward node gets the number that is current at its creation."""
    sequence, root = trace.ints("sequence"), outermost(trace)
    is_backward = trace.rows("phase", schema.BACKWARD)
    numbered = (sequence >= 0) & (root != NO_ROW)
    backward = np.flatnonzero(numbered & is_backward & np.append(marked(trace, rows), False)[root])
    backward = backward[~pd.Index(root[backward]).duplicated(keep="first")]
    low, high = sequence[backward].min(initial=np.iinfo(np.int64).max), sequence[backward].max(initial=-1)
    forward = np.flatnonzero(numbered & ~is_backward & (sequence >= low) & (sequence <= high))
    both = np.append(backward, forward)
    key, first = groupby.distinct([trace.ints("rank")[both], sequence[both]], len(both))
    last = np.full(len(first), NO_ROW, np.int64)
    last[key[len(backward) :]] = root[forward]  # if several operators have one number, the last is kept
    result = filled(len(trace), NO_ROW)
    result[root[backward]] = last[key[: len(backward)]]
    return result[rows]


COLUMNS: Final = (
    columns.key("node", "Node", "number of the node"),
    columns.NAME,
    columns.OP_NAME,
    columns.PHASE,
    columns.MODULE,
    columns.STEP,
    columns.TID,
    columns.position("start_ns", "Start", "time since the start of the first node"),
    columns.duration("total_cpu_ns", "Total CPU", place=columns.HOST),
    columns.count("device_events", "Device events", place=columns.DEVICE),
    columns.duration("total_device_ns", "Total device", place=columns.DEVICE),
    columns.text("streams", "Streams"),
    columns.key("before", "Before", "node at which the edge begins", by=("edge",)),
    # With --by edge: the node at which the edge ends. Otherwise: the previous node on the same thread.
    columns.description("after", "After", by=("edge",)),
    columns.key("before_name", "Before name", by=("edge",)),
    columns.key("after_name", "After name", by=("edge",)),
    columns.key("edge", "Edge", "why the nodes are connected: thread, stream or backward", by=("edge",)),
    columns.text("after_on_stream", "After on stream", "previous node on the node's first stream"),
    columns.text("forward", "Forward", "forward node of a backward node"),
    columns.text("forward_by", "Forward by", "how the forward node was found: by sequence number or order"),
)

VIEW = View(
    name="graph",
    title="Dataflow",
    description="operators of one step in time order; each row names the previous operator on the thread and on the "
    "stream, and the forward operator",
    table=table,
    columns=COLUMNS,
    groupings=GROUPINGS,
    explain_empty=lambda trace: message("no operators were recorded"),
    report="",
)
