"""The Python stack of an event: as recorded with it, or from the Python frames around it."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core import nesting
from perfkit_core.analyses.tables import texts
from perfkit_core.schema import FORWARD, NO_ROW, PYTHON
from perfkit_core.trace import BoolArray, IntArray, Trace

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
    members, path = _paths(trace, member, outermost_first)
    nearest = nesting.nearest_on_path(trace.ints("parent"), member)[rows]
    position = np.full(len(trace) + 1, -1, np.int64)
    position[members] = np.arange(len(members))
    encoded = path.dictionary_encode()
    codes = np.append(encoded.indices.to_numpy(), -1)
    return pd.Categorical.from_codes(codes[position[nearest]], categories=encoded.dictionary.to_pylist())


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


def _paths(trace: Trace, member: BoolArray, outermost_first: bool) -> tuple[IntArray, pa.Array]:
    """Rows of all members, and the path of each; one pass for each depth, all members of it at once."""
    members = np.flatnonzero(member)
    position = np.full(len(trace) + 1, -1, np.int64)
    position[members] = np.arange(len(members))
    parent = trace.ints("parent")
    nearest = np.append(nesting.nearest_on_path(parent, member), NO_ROW)
    above = position[nearest[parent[members]]]
    names = trace.codes("name")
    path = pa.array(names.values, pa.string()).take(pa.array(names.codes[members]))
    level = _depth(above)
    for depth in range(1, int(level.max(initial=0)) + 1):
        at = np.flatnonzero(level == depth)
        ends = path.take(pa.array(at)), path.take(pa.array(above[at]))
        joined = pc.binary_join_element_wise(*(ends[::-1] if outermost_first else ends), SEPARATOR)
        mask = np.zeros(len(members), np.bool_)
        mask[at] = True
        path = pc.replace_with_mask(path, pa.array(mask), joined)
    return members, path


def _depth(above: IntArray) -> IntArray:
    return nesting.sum_down(above, np.where(above == NO_ROW, 0, 1).astype(np.int64))
