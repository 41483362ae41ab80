"""The distinct stacks of a trace as a tree, with their weights: host time, device time, calls or bytes.

The stack of an event begins with its thread. The host events that enclose the event follow, including Python frames.
Device work follows the host event that launched it. Memory events count for the host event around them. A recorded
Python stack (column ``stack``) comes before its event. This stack is left out if an enclosing event is a Python frame
or has a recorded stack. All steps have the name ``step``."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import numpy as np

from perfkit_core.base.algorithms import arrays, nesting, trees
from perfkit_core.base.algorithms.arrays import filled
from perfkit_core.exporters import BYTES, CALLS, CPU, DEVICE
from perfkit_core.exporters.lanes import lanes
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.attribution import owners
from perfkit_core.views.memory.events import counted_bytes, memory_events
from perfkit_core.views.user_code import SEPARATOR

NO_LAUNCH: Final = "no launch recorded"
STEP: Final = "step"


def call_paths(trace: Trace) -> tuple[trees.Tree, list[tuple[str, ...]]]:
    """Return a tree of stacks, and labels. The key of a node is the index of its label. A label contains the frames
    that the node adds to the stack of its parent, outermost first. The label of a root begins with the thread."""
    work, memory = trace.rows("kind", *schema.DEVICE_WORK), trace.rows("kind", schema.MEMORY)
    nested = trace.ints("self_ns") >= 0
    above = np.where(work, owners(trace), trace.ints("parent"))
    label, labels = _labels(trace, above == arrays.NO_ROW)
    within = memory & (above != arrays.NO_ROW)  # A memory event is not a frame. It belongs to its parent.
    # Merge device work last, so that it follows its launch even if the clocks of host and device differ.
    order = np.argsort(work, kind="stable")
    position = np.full(len(order) + 1, arrays.NO_ROW, np.int64)
    position[order] = np.arange(len(order))
    member = (nested | work | memory) & ~within
    parent = position[above[order]]
    parent[parent >= np.arange(len(parent))] = arrays.NO_ROW  # in a damaged file, device work may enclose a host event
    tree = trees.merge(parent, label[order], member[order])
    node = tree.node[position[:-1]]
    return trees.Tree(tree.parent, tree.key, np.where(within, node[above], node)), labels


def cut_to(most: int, tree: trees.Tree, sizes: arrays.IntArray, weighted: arrays.BoolArray) -> tuple[trees.Tree, str]:
    """Limit the depth of the tree, for a format that writes the complete stack of each node in the mask ``weighted``.
    The size of such a file grows with the square of the depth. ``sizes`` are the sizes of the nodes without the nodes
    above them. Return the tree in which the stacks have at most the size ``most`` together, and a note, or "" if the
    tree is unchanged. Events of deeper nodes count for their ancestor at the largest depth."""
    depth, size = tree.depth(), nesting.sum_down(tree.parent, sizes)
    inherits = nesting.holds(tree.parent, weighted) & ~weighted  # nodes that get a weight if the tree is cut below them
    written, merged = (np.bincount(depth, np.where(mask, size, 0.0)) for mask in (weighted, inherits))
    if not len(tree) or written.sum() <= most:
        return tree, ""
    deepest = max(int(np.searchsorted(written.cumsum() + merged, most, side="right")) - 1, 0)
    nearest = nesting.nearest_on_path(tree.parent, depth <= deepest)
    node = np.where(tree.node == arrays.NO_ROW, arrays.NO_ROW, nearest[tree.node])
    note = f"stacks are cut to {deepest + 1:,} levels to limit the size of the file"
    return trees.Tree(tree.parent, tree.key, node), f"{note}; deeper events count for the last level"


def _labels(trace: Trace, top: arrays.BoolArray) -> tuple[arrays.IntArray, list[tuple[str, ...]]]:
    """Return the index of each event's label, and the labels. A label contains the thread (only where ``top`` is true),
    the frames of the recorded stack, and the name of the event."""
    names, stacks, parent = trace.codes("name"), trace.codes("stack"), trace.ints("parent")
    spelled = [*((value,) for value in names.values), (STEP,), ()]
    name = np.where(trace.rows("kind", schema.STEP), len(names.values), names.codes)
    name = np.where(trace.rows("kind", schema.MEMORY), len(names.values) + 1, name).astype(np.int64)
    # Use the stack of an event only if no enclosing event has a stack or is a Python frame.
    has_stack = stacks.codes >= 0
    nearest = nesting.nearest_on_path(parent, has_stack | trace.rows("kind", schema.PYTHON))
    begins = has_stack & (np.where(parent == arrays.NO_ROW, arrays.NO_ROW, nearest[parent]) == arrays.NO_ROW)
    stack = np.where(begins, stacks.codes, -1).astype(np.int64) + 1
    # A stack begins with a thread, or with NO_LAUNCH if it contains only device work.
    timeline = lanes(trace, split_python=False, spread=False)
    threads = [lane.name if lane.host else NO_LAUNCH for lane in timeline.lanes]
    if len(trace.meta.ranks) > 1:
        threads = [f"rank {lane.rank}: {name}" for lane, name in zip(timeline.lanes, threads, strict=True)]
    root_numbers = {name: number for number, name in enumerate(dict.fromkeys(threads))}
    roots, number = list(root_numbers), np.array([*(root_numbers[name] for name in threads), -1], np.int64)
    root = np.where(top, number[timeline.lane], -1) + 1
    # A label is the triple (root, stack, name) of an event; 0 means that it has no thread, or no stack:
    #   root   1 + index in ``roots``       stack   1 + index in ``stacks.values``       name   index in ``spelled``
    sizes = len(roots) + 1, len(stacks.values) + 1, len(spelled)
    keys, label = np.unique(np.ravel_multi_index((root, stack, name), sizes), return_inverse=True)
    labels = []
    for root_code, stack_code, name_code in np.transpose(np.unravel_index(keys, sizes)).tolist():
        thread = [roots[root_code - 1]] if root_code else []
        frames = stacks.values[stack_code - 1].split(SEPARATOR)[::-1] if stack_code else []
        labels.append((*thread, *frames, *spelled[name_code]))
    return label.astype(np.int64), labels


_PATTERNS: Final = (
    re.compile(r"(?P<file>[^()]+)\((?P<line>\d{1,18})\): (?P<name>.+)", re.S),
    re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d{1,18}), in (?P<name>.+)', re.S),
    re.compile(r"(?P<file>[^():;]+\.py):(?P<line>\d{1,18})(?::| in | )(?P<name>.+)", re.S),
)


class Frame(NamedTuple):
    """A stack frame. ``text`` is the recorded text, and ``name`` the function. Unknown files and lines are None."""

    text: str
    name: str
    file: str | None = None
    line: int | None = None


def frame(text: str) -> Frame:
    """Parse a frame. ``train.py(12): step`` has name, file and line. Other texts have only a name."""
    for pattern in _PATTERNS:
        match = pattern.fullmatch(text)
        if match:
            return Frame(text, match["name"], match["file"], int(match["line"]))
    return Frame(text, text)


LACKING: Final = {
    CPU: "no host events were recorded, so no stack has host time",
    DEVICE: "no device work was recorded, so no stack has device time",
    CALLS: "no host events or device work were recorded, so no stack has calls",
    BYTES: "no memory events were recorded, so no stack has bytes; set profile_memory when recording",
}
"""Weight → reason why no stack has this weight."""


def default(trace: Trace) -> str:
    """Return the default weight: device time if the trace has device time but no host time, else host time."""
    return CPU if weigh(trace, CPU).any() or not weigh(trace, DEVICE).any() else DEVICE


def weigh(trace: Trace, weight: str) -> arrays.IntArray:
    """Return the weight of each event, shape (rows,).

    - "cpu": self time of host events, in ns.
    - "device": duration of device work, in ns.
    - "calls": 1 per call.
    - "bytes": allocated bytes, without memory that the allocator reserves."""
    if weight == CPU:
        return trace.ints("self_ns", 0)
    work = trace.rows("kind", *schema.DEVICE_WORK)
    if weight == DEVICE:
        return np.where(work, trace.ints("dur_ns"), 0)
    if weight == CALLS:
        nested = trace.ints("self_ns") >= 0
        return np.where(work | nested, 1, 0).astype(np.int64)
    memory, allocated = memory_events(trace), filled(len(trace), 0)
    allocated[memory.row] = np.maximum(counted_bytes(memory), 0)
    return allocated
