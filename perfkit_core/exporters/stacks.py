"""Distinct stacks of a trace as a tree, and their weights: host time, device time, calls or bytes.

A stack begins at the thread and contains the host events around an event, Python frames included. A stack recorded in
the column ``stack`` precedes it, once. Device work lies below the host event that owns it, memory events in the event
around them. All steps share one name.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import numpy as np

from perfkit_core.algorithms import arrays, nesting, trees
from perfkit_core.exporters import BYTES, CALLS, CPU, DEVICE
from perfkit_core.exporters.lanes import lanes
from perfkit_core.model import schema
from perfkit_core.model.trace import Trace
from perfkit_core.views.attribution import owners
from perfkit_core.views.grouping import SEPARATOR
from perfkit_core.views.memory.events import counted_bytes, memory_events

NO_LAUNCH: Final = "no launch recorded"
STEP: Final = "step"


def call_paths(trace: Trace) -> tuple[trees.Tree, list[tuple[str, ...]]]:
    """Return the tree of the stacks of all host events, device work and memory events, and the labels that its keys
    index: the frames of a node, outermost first. The first frame of a root is the thread."""
    work, memory = trace.rows("kind", *schema.DEVICE_WORK), trace.rows("kind", schema.MEMORY)
    nested = trace.ints("self_ns") >= 0
    above = np.where(work, owners(trace), trace.ints("parent"))
    label, labels = _labels(trace, above == arrays.NO_ROW)
    within = memory & (above != arrays.NO_ROW)  # a memory event is not a frame: it belongs to its parent
    # Merge device work last, so that it follows its owner even if the clocks of host and device disagree.
    order = np.argsort(work, kind="stable")
    position = np.full(len(order) + 1, arrays.NO_ROW, np.int64)
    position[order] = np.arange(len(order))
    member = (nested | work | memory) & ~within
    tree = trees.merge(position[above[order]], label[order], member[order])
    node = tree.node[position[:-1]]
    return trees.Tree(tree.parent, tree.key, np.where(within, node[above], node)), labels


def _labels(trace: Trace, top: arrays.BoolArray) -> tuple[arrays.IntArray, list[tuple[str, ...]]]:
    """Return the label of each event: thread (if ``top``), recorded stack, name."""
    names, stacks, parent = trace.codes("name"), trace.codes("stack"), trace.ints("parent")
    spelled = [*((value,) for value in names.values), (STEP,), ()]
    name = np.where(trace.rows("kind", schema.STEP), len(names.values), names.codes)
    name = np.where(trace.rows("kind", schema.MEMORY), len(names.values) + 1, name).astype(np.int64)
    # Use only the outermost recorded stack, and none within recorded Python frames.
    has_stack = stacks.codes >= 0
    nearest = nesting.nearest_on_path(parent, has_stack | trace.rows("kind", schema.PYTHON))
    begins = has_stack & (np.where(parent == arrays.NO_ROW, arrays.NO_ROW, nearest[parent]) == arrays.NO_ROW)
    stack = np.where(begins, stacks.codes, -1).astype(np.int64) + 1
    # The root of an event is its thread, or NO_LAUNCH.
    timeline = lanes(trace, apart=False, spread=False)
    threads = [lane.name if lane.host else NO_LAUNCH for lane in timeline.lanes]
    if len(trace.meta.ranks) > 1:
        threads = [f"rank {lane.rank}: {name}" for lane, name in zip(timeline.lanes, threads, strict=True)]
    roots = list(dict.fromkeys(threads))
    number = np.array([*(roots.index(name) for name in threads), -1], np.int64)
    root = np.where(top, number[timeline.lane], -1) + 1
    width, height = len(spelled), len(stacks.values) + 1
    keys, label = np.unique((root * height + stack) * width + name, return_inverse=True)
    labels = []
    for key in keys.tolist():
        frames = stacks.values[key // width % height - 1].split(SEPARATOR)[::-1] if key // width % height else []
        thread = [roots[key // width // height - 1]] if key // width // height else []
        labels.append((*thread, *frames, *spelled[key % width]))
    return label.astype(np.int64), labels


_PATTERNS: Final = (
    re.compile(r"(?P<file>[^()]+)\((?P<line>\d+)\): (?P<name>.+)", re.S),
    re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>.+)', re.S),
    re.compile(r"(?P<file>[^():;]+\.py):(?P<line>\d+)(?::| in | )(?P<name>.+)", re.S),
)


class Frame(NamedTuple):
    """Function, file and line (None if unknown); ``text`` is the recorded frame."""

    text: str
    name: str
    file: str | None = None
    line: int | None = None


def frame(text: str) -> Frame:
    """Return the frame of a text: ``train.py(12): step`` → step, train.py, 12; any other text is the name."""
    for pattern in _PATTERNS:
        match = pattern.fullmatch(text)
        if match:
            return Frame(text, match["name"], match["file"], int(match["line"]))
    return Frame(text, text)


LACKING: Final = {
    CPU: "no host events were recorded, so no stack has host time",
    DEVICE: "no device work was recorded, so no stack has device time",
    CALLS: "no events that nest were recorded",
    BYTES: "no memory events were recorded, so no stack has bytes: record with profile_memory",
}
"""Reason why a weight is 0 everywhere."""


def default(trace: Trace) -> str:
    """Return the default weight: host time, or device time for a trace with device time only."""
    return CPU if weigh(trace, CPU).any() or not weigh(trace, DEVICE).any() else DEVICE


def weigh(trace: Trace, weight: str) -> arrays.IntArray:
    """Return the weight of each event, shape (rows,): self time of host events or duration of device work (ns), 1 per
    call, or allocated bytes (without the allocator's own reserve)."""
    if weight == CPU:
        return trace.ints("self_ns", 0)
    work = trace.rows("kind", *schema.DEVICE_WORK)
    if weight == DEVICE:
        return np.where(work, trace.ints("dur_ns"), 0)
    if weight == CALLS:
        nested = trace.ints("self_ns") >= 0
        return np.where(work | nested, 1, 0).astype(np.int64)
    found, allocated = memory_events(trace), np.zeros(len(trace), np.int64)
    allocated[found.row] = np.maximum(counted_bytes(found), 0)
    return allocated
