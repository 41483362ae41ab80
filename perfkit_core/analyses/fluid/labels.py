"""What the rows of the event tree are called: by name, by thread (``thread0::conv2d``), by instance (``conv2d_0``)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from perfkit_core import grouped, nesting
from perfkit_core.analyses.fluid import scope
from perfkit_core.analyses.fluid.threads import thread_numbers
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.schema import MEMCPY, NO_ROW
from perfkit_core.trace import BoolArray, IntArray, Trace
from perfkit_core.trees import Tree


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
    """The labels of the events of the tree; members outside every other one are its roots."""
    rows = np.flatnonzero(member)
    text, texts = _texts(trace, rows)
    top = ~nesting.lies_in(trace.ints("parent"), member)[rows]
    split = np.full((int(top.sum()), 3), -1, np.int64)
    split[:, 0] = text[top]
    if scope.asked_for(request, scope.THREAD):
        split[:, 1] = thread_numbers(trace)[0][rows[top]]
    if scope.asked_for(request, scope.INSTANCE):
        split[:, 2] = pd.DataFrame(split[:, :2]).groupby([0, 1]).cumcount()
    which, first = grouped.sorted_codes(split.T, len(split))
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
    pairs, index = grouped.ranked(name.codes[rows] * np.int64(width) + copied[rows] + 1, len(name.values) * width)
    texts = [_text(name.values[pair // width], pair % width - 1, kind.values) for pair in pairs.tolist()]
    return index, texts


def _text(name: str, kind: int, kinds: list[str]) -> str:
    if kind > len(kinds):
        return name
    return f"{name}: {scope.direction(kinds[kind] if kind >= 0 else '')}"
