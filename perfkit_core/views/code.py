"""Which code took the time? A tree of Python frames, the outermost at the root.

A frame that was recorded as an event has the line where its function begins; where it ran already when the recording
began, the line at which it was then (torch records no other); a frame in the stack of an operator has the line that
called it.

Where frames were recorded as events, a frame's time is its duration: what it calls, and Python itself. Where only the
operators hold their stack, it is the time of those operators. Device work belongs to the frame whose code launched it;
that of a backward pass is launched by the line that runs it, not by the line of the forward operator.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from perfkit_core.algorithms import groupby, nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, Codes, IntArray
from perfkit_core.algorithms.trees import Tree, heaviest_first, merge, preorder
from perfkit_core.language.messages import Text, message
from perfkit_core.model.columns import (
    CALLS,
    CPU,
    DEPTH,
    HOST,
    NAME,
    ON_DEVICE,
    SELF_CPU,
    SELF_DEVICE,
    Share,
    share,
    text,
)
from perfkit_core.model.schema import NESTED_KINDS
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.views import attribution
from perfkit_core.views.grouping import SEPARATOR, called, is_frame
from perfkit_core.views.select import selected, threads
from perfkit_core.views.tables import ratio

_LINE = r"^(?P<file>.+?)(?:\((?P<line>\d+)\)|:(?P<line2>\d+))(?:(?:: ?| )(?P<function>.*))?$"
_NUMBER = re.compile(r"\(\d+\)(?=: )")


@dataclass(frozen=True, slots=True)
class Frames:
    """``tree``: its keys index ``names``, its ``node`` of every host event is that of the frame around it. Then for
    each node how often it was called, and its time with and without the frames below it, shape (nodes,). Only what
    counts is in them: a node that does not itself has the time of the frames below it that do."""

    tree: Tree
    names: list[str]
    calls: IntArray
    total_ns: IntArray
    self_ns: IntArray


def has_frames(trace: Trace) -> bool:
    """Whether frames are events of the trace."""
    return bool(is_frame(trace).any())


def running_before(trace: Trace) -> BoolArray:
    """True for frames that are events and ran when their recording began: their line is that where the recording found
    them. A frame is called by another one, so that a recording begins where a frame begins and none of the process
    runs; what ran already comes before any frame ends. Shape (rows,)."""
    rows = np.flatnonzero(is_frame(trace))
    found = np.zeros(len(trace), np.bool_)
    process, _ = groupby.distinct([trace.ints("rank")[rows], trace.ints("pid")[rows]], len(rows))
    order = np.lexsort((trace.ints("start_ns")[rows], process))
    rows, process = rows[order], process[order]
    start, end = trace.ints("start_ns")[rows], pd.Series(trace.end_ns[rows])
    last_end = end.groupby(process).cummax().groupby(process).shift(fill_value=np.iinfo(np.int64).min)
    recording = np.cumsum(start >= last_end.to_numpy())
    found[rows] = start < end.groupby(recording).transform("min").to_numpy()
    return found


def frame_names(trace: Trace) -> Codes:
    """The names of all events, those of frames that ran when their recording began without a line."""
    names = trace.codes("name")
    code = names.codes + np.where(running_before(trace), len(names.values), 0).astype(np.int32)
    return Codes(code, [*names.values, *(_NUMBER.sub("", name) for name in names.values)])


def tree_of_frames(trace: Trace, counted: BoolArray) -> Frames:
    """From frames that are events: time is theirs."""
    frame = is_frame(trace)
    rows = np.flatnonzero(frame)
    recorded_names = trace.codes("name")
    names, code = _distinct([called(name) for name in recorded_names.values])
    start, end = trace.ints("start_ns")[rows], trace.end_ns[rows]
    above = nesting.nest(threads(trace).code[rows], start, end)
    parent = trace.ints("parent").copy()
    parent[rows] = np.append(rows, NO_ROW)[above]  # labels overlap frames without nesting; frames alone are a tree
    tree = merge(parent, recorded_names.lookup(code, 0), frame)
    own = np.zeros(len(trace), np.int64)
    own[rows] = nesting.self_times(above, start, end)
    mine = frame & counted
    calls, total = tree.own(mine.astype(np.int64)), tree.inclusive(_less_inner(trace, parent, mine))
    self_ns = tree.own(np.where(mine, own, 0))
    return Frames(_spread(trace, tree, frame), names, calls, total, self_ns)


def _less_inner(trace: Trace, parent: IntArray, counted: BoolArray) -> IntArray:
    """Duration of each counted frame less those of the counted ones right below it: summed up, a counted frame has its
    duration, and one that is not (it began before the chosen steps) that of the counted ones below it. Shape
    (rows,)."""
    rest = np.where(counted, trace.ints("dur_ns"), 0)
    above = nesting.nearest_above(parent, counted)
    inner = np.flatnonzero(counted & (above != NO_ROW))
    np.subtract.at(rest, above[inner], trace.ints("dur_ns")[inner])
    return rest


def tree_of_stacks(trace: Trace, counted: BoolArray) -> Frames:
    """From the stacks that operators hold: time is that of the operators."""
    if not trace.known("stack"):
        nothing = np.empty(0, np.int64)
        return Frames(Tree(nothing, nothing, np.full(len(trace), NO_ROW)), [], nothing, nothing, nothing)
    stack = trace.codes("stack")
    holds = stack.codes >= 0
    tree, names, leaf = _of_texts(stack.values)
    node = np.where(holds, np.append(leaf, NO_ROW)[stack.codes], NO_ROW)
    tree = _spread(trace, Tree(tree.parent, tree.key, node), holds)
    time = np.where(counted & trace.host & trace.rows("kind", *NESTED_KINDS), np.maximum(trace.ints("self_ns"), 0), 0)
    calls = np.bincount(node[holds & counted], minlength=len(tree)).astype(np.int64)
    return Frames(tree, names, calls, tree.inclusive(time), tree.own(time))


def split_names(names: list[str]) -> dict[str, pd.Series]:
    """Columns name, file, line, function of frame names; the last three null where a name has no file and line."""
    text = pd.Series(names, dtype="string")
    found = text.str.extract(_LINE)
    line = pd.to_numeric(found["line"].fillna(found["line2"])).astype("Int64")
    short = found["file"].str.replace(r"^.*[/\\]", "", regex=True) + "(" + line.astype("string") + ")"
    short = short + (": " + found["function"]).fillna("")
    columns = {"name": short.fillna(text), "file": found["file"], "line": line, "function": found["function"]}
    return {name: values if name == "line" else values.astype(object) for name, values in columns.items()}


def _spread(trace: Trace, tree: Tree, holds: BoolArray) -> Tree:
    """The same tree, in which every host event has the node of the nearest event that ``holds`` one."""
    nearest = nesting.nearest_on_path(trace.ints("parent"), holds)
    return Tree(tree.parent, tree.key, np.append(tree.node, NO_ROW)[nearest])


def _of_texts(texts: list[str]) -> tuple[Tree, list[str], IntArray]:
    """The tree of the distinct stack texts (innermost frame first), its names, and the node of each text's leaf."""
    nodes: dict[tuple[int, str], int] = {}
    leaf = []
    for stack in texts:
        node = NO_ROW
        for name in reversed(stack.split(SEPARATOR)):
            node = nodes.setdefault((node, called(name)), len(nodes))
        leaf.append(node)
    names, key = _distinct([name for _, name in nodes])
    parent = np.array([above for above, _ in nodes], np.int64)
    return Tree(parent, key, np.empty(0, np.int64)), names, np.array(leaf, np.int64)


def _distinct(names: list[str]) -> tuple[list[str], IntArray]:
    """The distinct names, and the position in them of each."""
    position: dict[str, int] = {}
    code = [position.setdefault(name, len(position)) for name in names]
    return list(position), np.array(code, np.int64)


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """The frames as a tree; see :data:`COLUMNS`. Ratios: of the roots."""
    counted = selected(trace, request)
    found = tree_of_frames(trace, counted) if has_frames(trace) else tree_of_stacks(trace, counted)
    owner = attribution.self_device_ns(trace)
    device = np.where(counted, owner, 0)
    columns = {
        "calls": found.calls,
        "total_cpu_ns": found.total_ns,
        "self_cpu_ns": found.self_ns,
        "total_device_ns": found.tree.inclusive(device),
        "self_device_ns": found.tree.own(device),
    }
    seen = nesting.sum_up(found.tree.parent, found.calls + found.total_ns) > 0
    order = preorder(found.tree.parent, heaviest_first((found.names[key] for key in found.tree.key), found.total_ns))
    return _table(found, columns, order[seen[order]])


def _table(found: Frames, columns: dict[str, IntArray], order: IntArray) -> pd.DataFrame:
    names = split_names(found.names)
    result = pd.DataFrame({"depth": found.tree.depth()[order]})
    for name, values in names.items():
        result[name] = values.iloc[found.tree.key[order]].reset_index(drop=True)
    for name, numbers in columns.items():
        result[name] = numbers[order]
    whole = int(result.loc[result["depth"] == 0, "total_cpu_ns"].sum())
    for kind in ("total", "self"):
        place = list(result.columns).index(f"{kind}_cpu_ns")
        result.insert(place + 1, f"{kind}_cpu_ratio", ratio(result[f"{kind}_cpu_ns"], whole))
    return result


def _why_empty(trace: Trace) -> Text:
    return message(
        "no Python stacks were recorded: where the profiler can, with_stack=True asks for them (record --stacks)"
    )


COLUMNS = (
    DEPTH,
    replace(NAME, description="``file.py(12): function``"),
    text("file", "File"),
    text("line", "Line"),
    text("function", "Function"),
    replace(CALLS, description="0 where only the stacks of operators name the frame, or only what it calls counts"),
    replace(CPU[0], own="self_cpu_ns"),
    share("total_cpu_ratio", "Total CPU", Share("total_cpu_ns"), place=HOST, own="self_cpu_ratio"),
    replace(SELF_CPU, description="without the frames that it calls"),
    share("self_cpu_ratio", "Self CPU", Share("self_cpu_ns", of="total_cpu_ns"), place=HOST),
    replace(ON_DEVICE[0], own="self_device_ns"),
    SELF_DEVICE,
)

VIEW = View(
    name="code",
    title="Code",
    description="host and device time of Python functions (or of calling lines, where operators hold them), as a tree",
    table=table,
    columns=COLUMNS,
    order="total_cpu_ns",
    explain_empty=_why_empty,
    reduction=MergedRows(weight=("total_cpu_ns",)),
)
