"""The Python stack of an event: as recorded with it, or from the Python frames around it."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pandas as pd

from perfkit_core import nesting
from perfkit_core.analyses.tables import texts
from perfkit_core.schema import FORWARD, NO_ROW, PYTHON
from perfkit_core.trace import BoolArray, IntArray, Trace
from perfkit_core.trees import Tree, merge

SEPARATOR = ";"
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def stacks(trace: Trace, rows: IntArray) -> pd.Categorical:
    """Innermost frame first, separated by ``;``, without the addresses of objects; null where no frame was recorded.
    Shape (len(rows),)."""
    return _each(as_recorded(trace, rows), called)


def as_recorded(trace: Trace, rows: IntArray) -> pd.Categorical:
    """As :func:`stacks`, with the addresses."""
    recorded = trace.codes("stack")
    if (recorded.codes[rows] >= 0).any():
        return innermost(texts(recorded, rows), None)
    return around(trace, rows, is_frame(trace))


def around(trace: Trace, rows: IntArray, member: BoolArray, outermost_first: bool = False) -> pd.Categorical:
    """Names of the events where ``member`` is true that lie around each row, separated by ``;``, null where there are
    none. Shape (len(rows),)."""
    tree = merge(trace.ints("parent"), trace.codes("name").codes.astype(np.int64), member)
    texts = _paths(tree, trace.codes("name").values, outermost_first)
    values = list(dict.fromkeys(texts))
    position = {text: code for code, text in enumerate(values)}
    code = np.array([*(position[text] for text in texts), -1], np.int64)
    nearest = nesting.nearest_on_path(trace.ints("parent"), member)[rows]
    return pd.Categorical.from_codes(code[np.append(tree.node, -1)[nearest]], categories=pd.Index(values, dtype=object))


def innermost(stack: pd.Categorical, count: int | None) -> pd.Categorical:
    """The ``count`` innermost frames of each stack (None: all)."""
    return _each(stack, lambda text: SEPARATOR.join([part for part in text.split(SEPARATOR) if part][:count]))


def _each(stack: pd.Categorical, change: Callable[[str], str]) -> pd.Categorical:
    """Each distinct stack changed; those that become equal are one."""
    changed = [change(text) for text in stack.categories]
    values = list(dict.fromkeys(changed))
    position = {text: code for code, text in enumerate(values)}
    codes = np.array([position[text] for text in changed] + [-1], np.int64)
    return pd.Categorical.from_codes(codes[stack.codes], categories=pd.Index(values, dtype=object))


def called(frame: str) -> str:
    """What a frame calls, whatever the object: methods of thousands of tensors are one."""
    return _ADDRESS.sub("", frame)


def is_frame(trace: Trace) -> BoolArray:
    """True for the events that are Python frames."""
    return trace.rows("kind", PYTHON) | (trace.rows("kind", FORWARD) & trace.rows("category", "python_function"))


def _paths(tree: Tree, names: list[str], outermost_first: bool) -> list[str]:
    """The text of each node of the tree: its name and those above it."""
    paths: list[str] = []
    for above, key in zip(tree.parent.tolist(), tree.key.tolist(), strict=True):
        ends = [names[key]] if above == NO_ROW else [names[key], paths[above]]
        paths.append(SEPARATOR.join(ends[::-1] if outermost_first else ends))
    return paths
