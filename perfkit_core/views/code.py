"""View ``code``: the time of Python code as a tree of frames. The outermost frames are the roots.

There are two kinds of recordings:

- Each call of a Python function was recorded as an event. The line is the first line of the function. The time is the
  duration of the call. If a call began before the recording, torch does not record the first line. It records the
  line that was running when the recording began.
- Only operators were recorded, with their stacks. The line is the line of the call, and the time of a frame is the time
  of the operators called in it.

Device work belongs to the frame that launched it. Work of a backward pass belongs to the frame that runs the pass."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import groupby, nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, Codes, IntArray, filled
from perfkit_core.base.algorithms.trees import Tree, heaviest_first, merge, preorder
from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import Merged, View, ViewRequest
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.trace.model import columns
from perfkit_core.trace.model.columns import (
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
)
from perfkit_core.trace.model.schema import NESTED_KINDS
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import attribution, grouping
from perfkit_core.views.select import selected, threads
from perfkit_core.views.tables import ratio
from perfkit_core.views.user_code import SEPARATOR

_LINE: Final = r"^(?P<file>.+?)(?:\((?P<line>\d{1,18})\)|:(?P<line2>\d{1,18}))(?:(?:: ?| )(?P<function>.*))?$"
_NUMBER: Final = re.compile(r"\(\d+\)(?=: )")


@dataclass(frozen=True, slots=True)
class Frames:
    """The frames of a trace as a tree of calls. Only selected events count. A frame that is not selected has 0 calls.
    Its total is the total of the selected frames that it calls."""

    tree: Tree  # `tree.key`: index into `names`; `tree.node`: innermost frame around each host event
    names: list[str]
    calls: IntArray  # shape (nodes,)
    total_ns: IntArray  # with the frames below, shape (nodes,)
    self_ns: IntArray  # shape (nodes,)


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return the frames as a tree, with :data:`COLUMNS`. Ratios are shares of the total time of all roots."""
    counted = selected(trace, request)
    frames = tree_of_frames(trace, counted) if grouping.is_frame(trace).any() else tree_of_stacks(trace, counted)
    tree, device = frames.tree, np.where(counted, attribution.self_device_ns(trace), 0)
    has_events = nesting.sum_up(tree.parent, frames.calls + frames.total_ns) > 0
    order = preorder(tree.parent, heaviest_first((frames.names[key] for key in tree.key), frames.total_ns))
    order = order[has_events[order]]

    result = pd.DataFrame({"depth": tree.depth()[order]})
    for name, values in split_names(frames.names).items():
        result[name] = values.iloc[tree.key[order]].reset_index(drop=True)
    result["calls"] = frames.calls[order]
    roots_ns = int(frames.total_ns[order][result["depth"] == 0].sum())
    for kind, times in (("total", frames.total_ns), ("self", frames.self_ns)):
        result[f"{kind}_cpu_ns"] = times[order]
        result[f"{kind}_cpu_ratio"] = ratio(times[order], roots_ns)
    return result.assign(total_device_ns=tree.inclusive(device)[order], self_device_ns=tree.exclusive(device)[order])


def tree_of_frames(trace: Trace, counted: BoolArray) -> Frames:
    """Return the tree of the frames that were recorded as events."""
    frame = grouping.is_frame(trace)
    rows = np.flatnonzero(frame)
    recorded = trace.codes("name")
    code, names = pd.factorize(np.array([grouping.called(name) for name in recorded.values], object))
    start, end = trace.ints("start_ns")[rows], trace.end_ns[rows]
    above = nesting.nest(threads(trace).code[rows], start, end)
    parent = trace.ints("parent").copy()
    parent[rows] = np.append(rows, NO_ROW)[above]  # the next outer frame, not a label: labels may partly overlap frames
    tree = merge(parent, recorded.lookup(code, 0), frame)
    self_ns = filled(len(trace), 0)
    self_ns[rows] = nesting.self_times(above, start, end)
    # Each selected frame adds its duration to its own `rest`, and subtracts it from that of the next outer selected
    # frame. So the sum of `rest` over a subtree is the duration of the outermost selected frames in the subtree.
    mine = frame & counted
    rest = np.where(mine, trace.ints("dur_ns"), 0)
    around = nesting.nearest_above(parent, mine)
    inner = np.flatnonzero(mine & (around != NO_ROW))
    np.subtract.at(rest, around[inner], trace.ints("dur_ns")[inner])
    calls, total = tree.exclusive(mine.astype(np.int64)), tree.inclusive(rest)
    return Frames(_spread(trace, tree, frame), names.tolist(), calls, total, tree.exclusive(np.where(mine, self_ns, 0)))


def tree_of_stacks(trace: Trace, counted: BoolArray) -> Frames:
    """Return the tree of the operators' stacks. The time of a frame is the time of its operators."""
    stack = trace.codes("stack")
    nodes: dict[tuple[int, str], int] = {}
    leaf = []  # node of each stack's innermost frame, which comes first in the text
    for text in stack.values:
        node = NO_ROW
        for name in reversed(text.split(SEPARATOR)):
            node = nodes.setdefault((node, grouping.called(name)), len(nodes))
        leaf.append(node)
    key, names = pd.factorize(np.array([name for _, name in nodes], object))
    recorded = stack.codes >= 0
    of_event = np.where(recorded, np.append(np.array(leaf, np.int64), NO_ROW)[stack.codes], NO_ROW)
    parent = np.array([above for above, _ in nodes], np.int64)
    tree = _spread(trace, Tree(parent, key, of_event), recorded)
    time = np.where(counted & trace.host & trace.rows("kind", *NESTED_KINDS), np.maximum(trace.ints("self_ns"), 0), 0)
    calls = np.bincount(of_event[recorded & counted], minlength=len(tree)).astype(np.int64)
    return Frames(tree, names.tolist(), calls, tree.inclusive(time), tree.exclusive(time))


def _spread(trace: Trace, tree: Tree, has_node: BoolArray) -> Tree:
    """Give each event without a node the node of its nearest ancestor. Return the resulting tree."""
    nearest = nesting.nearest_on_path(trace.ints("parent"), has_node)
    return Tree(tree.parent, tree.key, np.append(tree.node, NO_ROW)[nearest])


def split_names(names: list[str]) -> dict[str, pd.Series]:
    """Split the names of frames into the columns name, file, line and function. A part that the name lacks is null."""
    text = pd.Series(names, dtype="string")
    parts = text.str.extract(_LINE)
    line = pd.to_numeric(parts["line"].fillna(parts["line2"])).astype("Int64")
    short = parts["file"].str.replace(r"^.*[/\\]", "", regex=True) + "(" + line.astype("string") + ")"
    short = short + (": " + parts["function"]).fillna("")
    result = {"name": short.fillna(text), "file": parts["file"], "line": line, "function": parts["function"]}
    return {name: values if name == "line" else values.astype(object) for name, values in result.items()}


def running_before(trace: Trace) -> BoolArray:
    """Return the mask of the frames that were already running when their recording began, shape (rows,). A frame counts
    if no frame of the same recording has ended when it starts. If a frame starts while no other frame of its process
    runs, a new recording is assumed to begin with it."""
    rows = np.flatnonzero(grouping.is_frame(trace))
    mask = np.zeros(len(trace), np.bool_)
    process, _ = groupby.distinct([trace.ints("rank")[rows], trace.ints("pid")[rows]], len(rows))
    order = np.lexsort((trace.ints("start_ns")[rows], process))
    rows, process = rows[order], process[order]
    start, end = trace.ints("start_ns")[rows], pd.Series(trace.end_ns[rows])
    last_end = end.groupby(process).cummax().groupby(process).shift(fill_value=np.iinfo(np.int64).min)
    recording = np.cumsum(start >= last_end.to_numpy())
    mask[rows] = start < end.groupby(recording).transform("min").to_numpy()
    return mask


def frame_names(trace: Trace) -> Codes:
    """Return the names of all events, without addresses of objects. Frames that began before the recording have names
    without a line."""
    names = trace.codes("name")
    code = names.codes + np.where(running_before(trace), len(names.values), 0).astype(np.int32)
    texts = [*names.values, *(_NUMBER.sub("", name) for name in names.values)]
    distinct, values = pd.factorize(np.array([*map(grouping.called, texts)], dtype=object))
    return Codes(np.append(distinct, NO_ROW)[code].astype(np.int32), values.tolist())


COLUMNS: Final = (
    DEPTH,
    replace(NAME, description="``file.py(12): function``", thing="code"),
    columns.text("file", "File"),
    columns.text("line", "Line"),
    columns.text("function", "Function"),
    replace(CALLS, description="calls of the frame; 0 if only frames below it are selected"),
    replace(CPU[0], own="self_cpu_ns"),
    share("total_cpu_ratio", "Total CPU", Share("total_cpu_ns"), place=HOST, own="self_cpu_ratio"),
    replace(SELF_CPU, description="time in the frame itself, without the frames that it calls"),
    share("self_cpu_ratio", "Self CPU", Share("self_cpu_ns", of="total_cpu_ns"), place=HOST),
    replace(ON_DEVICE[0], own="self_device_ns"),
    SELF_DEVICE,
)

VIEW = View(
    name="code",
    title="Code",
    description="tree of Python functions with host and device time; if only the stacks of operators were recorded, a "
    "tree of lines of code",
    table=Merged(table, siblings=("total_cpu_ns",)),
    columns=COLUMNS,
    order=("total_device_ns", "total_cpu_ns"),
    explain_empty=lambda trace: (
        get_plugins().instead(trace.meta.framework, "stacks")
        or message(
            "no Python stacks were recorded: pass with_stack=True to the profiler, if supported (record --stacks)"
        )
    ),
)
