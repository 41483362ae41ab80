"""Which operators took the time on the host and on the device, and which of their phases?

A tree: outermost operators, below them what they call (operators, details such as the inference of shapes and the
computation, calls that copy). Time is that of the host and of the device work launched inside, added.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from perfkit_core.algorithms import groupby, nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.algorithms.trees import Tree, heaviest_first, merge, preorder
from perfkit_core.language.messages import message
from perfkit_core.model.columns import (
    CALLS,
    DEPTH,
    DEVICE,
    HOST,
    MAX,
    MIN,
    NAME,
    RATIO,
    Average,
    Share,
    duration,
    share,
)
from perfkit_core.model.schema import MEMCPY, OPERATOR_DETAIL, OPERATOR_KINDS
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.views.fluid import scope
from perfkit_core.views.fluid.scope import thread_numbers
from perfkit_core.views.operators.own_time import is_call
from perfkit_core.views.select import selected
from perfkit_core.views.tables import rounded_division


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """The events as a tree; see :data:`COLUMNS`."""
    scope.asked_for(request, scope.THREAD)
    member = _members(trace, request)
    named = labels(trace, request, member)
    tree = merge(trace.ints("parent"), named.key, member)
    measures = _measures(tree, trace.ints("dur_ns"), scope.launched_ns(trace))
    roots = measures["total_ns"][tree.parent == NO_ROW].sum()
    measures["ratio"] = _share(measures["total_ns"], np.full(len(tree), roots))
    result = pd.DataFrame({"depth": tree.depth(), "name": named.names(tree), **measures})
    weight = heaviest_first(result["name"], result["total_ns"].to_numpy(np.int64))
    return result.iloc[preorder(tree.parent, weight)].reset_index(drop=True)


def _members(trace: Trace, request: ViewRequest) -> BoolArray:
    """Operators, and inside of them details and the calls that copy; a re-dispatch counts once."""
    inside = scope.outermost(trace, request) != NO_ROW
    events = trace.host & trace.rows("kind", *OPERATOR_KINDS, OPERATOR_DETAIL)
    member: BoolArray = inside & selected(trace, request) & ((events & is_call(trace)) | copy_calls(trace))
    return member


def _measures(tree: Tree, cpu: IntArray, device: IntArray) -> dict[str, IntArray | np.ndarray]:
    calls, cpu_ns, device_ns = (tree.own(values) for values in (np.ones(len(cpu), np.bool_), cpu, device))
    total = cpu_ns + device_ns
    least, most = _extremes(tree, cpu + device)
    return {
        "calls": calls,
        "total_ns": total,
        "cpu_ns": cpu_ns,
        "cpu_ratio": _share(cpu_ns, total),
        "device_ns": device_ns,
        "device_ratio": _share(device_ns, total),
        "min_ns": least,
        "max_ns": most,
        "avg_ns": rounded_division(total, calls),
    }


def _extremes(tree: Tree, values: IntArray) -> tuple[IntArray, IntArray]:
    least, most = groupby.extremes(tree.node, len(tree), values)
    return least, np.maximum(most, 0)


def _share(part: IntArray, whole: IntArray) -> np.ndarray:
    return np.where(whole > 0, part / np.maximum(whole, 1), 0.0)


@dataclass(frozen=True, slots=True)
class Labels:
    """``key`` of each event, shape (rows,): below ``len(texts)`` a text, from there on a row of ``roots``, which holds
    text, thread and instance of a root, -1 where it is not split."""

    key: IntArray
    texts: list[str]
    roots: IntArray

    def names(self, tree: Tree) -> list[str]:
        """The name of each node of a tree of these keys."""
        above = nesting.first_on_path(tree.parent, np.where(tree.parent == NO_ROW, np.arange(len(tree)), NO_ROW))
        thread = self.roots[tree.key[above] - len(self.texts), 1] if len(tree) else above
        return [self._name(key, number) for key, number in zip(tree.key.tolist(), thread.tolist(), strict=True)]

    def _name(self, key: int, thread: int) -> str:
        prefix = f"thread{thread}::" if thread >= 0 else ""
        if key < len(self.texts):
            return prefix + self.texts[key]
        text, _, instance = self.roots[key - len(self.texts)].tolist()
        return f"{prefix}{self.texts[text]}{f'_{instance}' if instance >= 0 else ''}"


def labels(trace: Trace, request: ViewRequest, member: BoolArray) -> Labels:
    """What the rows of the tree are called: by name, by thread (``thread0::conv2d``), by instance (``conv2d_0``).
    Members outside every other one are its roots."""
    rows = np.flatnonzero(member)
    text, texts = _texts(trace, rows)
    top = ~nesting.lies_in(trace.ints("parent"), member)[rows]
    split = np.full((int(top.sum()), 3), -1, np.int64)
    split[:, 0] = text[top]
    if scope.asked_for(request, scope.THREAD):
        split[:, 1] = thread_numbers(trace)[0][rows[top]]
    if scope.asked_for(request, scope.INSTANCE):
        split[:, 2] = pd.DataFrame(split[:, :2]).groupby([0, 1]).cumcount()
    which, first = groupby.sorted_codes(split.T, len(split))
    roots = split[first]
    key = np.full(len(trace), -1, np.int64)
    key[rows] = text
    key[rows[top]] = len(texts) + which
    return Labels(key, texts, roots)


def copy_calls(trace: Trace) -> BoolArray:
    """True for host calls that launched copies and nothing else."""
    every = np.bincount(trace.ints("launched_by")[scope.launches(trace)], minlength=len(trace))
    copies = np.bincount(trace.ints("launched_by")[scope.launches(trace, MEMCPY)], minlength=len(trace))
    only: BoolArray = (copies > 0) & (copies == every)
    return only


def _texts(trace: Trace, rows: IntArray) -> tuple[IntArray, list[str]]:
    """Index of the text of each row, and the texts: the name of the event, with the direction of a call that copies."""
    name, kind = trace.codes("name"), trace.codes("copy_kind")
    copies = scope.launches(trace, MEMCPY)
    copied = np.full(len(trace), len(kind.values) + 1, np.int64)
    copied[trace.ints("launched_by")[copies]] = kind.codes[copies]
    copied[~copy_calls(trace)] = len(kind.values) + 1
    width = len(kind.values) + 3
    pairs, index = groupby.ranked(name.codes[rows] * np.int64(width) + copied[rows] + 1, len(name.values) * width)
    texts = [_text(name.values[pair // width], pair % width - 1, kind.values) for pair in pairs.tolist()]
    return index, texts


def _text(name: str, kind: int, kinds: list[str]) -> str:
    if kind > len(kinds):
        return name
    return f"{name}: {scope.direction(kinds[kind] if kind >= 0 else '')}"


COLUMNS = (
    DEPTH,
    NAME,
    CALLS,
    duration("total_ns", "Total", per_step=True, description="CPU + device"),
    duration("cpu_ns", "CPU", per_step=True, place=HOST),
    share("cpu_ratio", "CPU", Share("cpu_ns", column="total_ns"), place=HOST, description="of the total of the row"),
    duration("device_ns", "Device", per_step=True, place=DEVICE),
    share("device_ratio", "Device", Share("device_ns", column="total_ns"), place=DEVICE),
    duration("min_ns", "Min", merge=MIN, of_capture=True, description="of the total of a call"),
    duration("max_ns", "Max", merge=MAX, of_capture=True),
    duration("avg_ns", "Avg", merge=Average("total_ns")),
    replace(RATIO, merge=Share("total_ns"), description="of the sum of the outermost rows"),
)

VIEW = View(
    name="fluid_events",
    title="Event Summary",
    description="host and device time of the outermost operators and of what they call",
    table=table,
    columns=COLUMNS,
    groupings=scope.GROUPINGS,
    order="total_ns",
    explain_empty=lambda trace: message("no operators were recorded"),
    group=scope.GROUP,
    page=False,
    reduction=MergedRows(weight=("total_ns",), together_only=True),
)
