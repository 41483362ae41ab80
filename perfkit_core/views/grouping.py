"""What the rows of a table are split by (``--by``): the key columns of the chosen events, Python stacks among them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.algorithms.trees import Tree, merge
from perfkit_core.errors import UsageError
from perfkit_core.model.schema import ANNOTATION, BACKWARD, FORWARD, NESTED_KINDS, PYTHON
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import ViewRequest, split_grouping
from perfkit_core.views.operators import calls
from perfkit_core.views.tables import texts

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


def forward_stacks(trace: Trace, rows: IntArray) -> pd.Categorical:
    """As :func:`as_recorded`, those of backward operators replaced, as a native table shows them. Same shape.

    torch replaces the stack of each backward node, and of all that it calls, by that of the first event outside of
    backward with the same sequence number, or by none. That first event may only have been begun before the node's own
    operator.
    """
    node = nesting.nearest_on_path(trace.ints("parent"), _backward_nodes(trace))
    source = np.where(node == NO_ROW, np.arange(len(trace)), np.append(_first(trace, node), NO_ROW)[node])
    whole = as_recorded(trace, np.maximum(source[rows], 0))
    codes = np.where(source[rows] == NO_ROW, -1, whole.codes)
    return pd.Categorical.from_codes(codes, categories=whole.categories)


def _backward_nodes(trace: Trace) -> BoolArray:
    """Backward events that are called by an event named after them (``evaluate_function: XBackward`` calls
    ``XBackward``)."""
    parent, name = trace.ints("parent"), trace.codes("name")
    rows = np.flatnonzero(trace.host & trace.rows("phase", BACKWARD) & (parent != NO_ROW))
    own, above = name.codes[rows].astype(np.int64), name.codes[parent[rows]].astype(np.int64)
    pairs, inverse = np.unique(above * len(name.values) + own, return_inverse=True)
    texts = name.values
    named = [
        texts[a] != texts[b] and texts[a].endswith(texts[b]) for a, b in (divmod(int(p), len(texts)) for p in pairs)
    ]
    found = np.zeros(len(trace), np.bool_)
    found[rows] = np.array(named, np.bool_)[inverse] if len(rows) else False
    return found


def _first(trace: Trace, node: IntArray) -> IntArray:
    """For each event the first one outside of backward nodes with its sequence number, -1 for none."""
    sequence = trace.ints("sequence")
    keys = pd.MultiIndex.from_arrays([trace.ints("rank"), sequence])
    outside = np.flatnonzero(trace.host & trace.rows("kind", *NESTED_KINDS) & (node == NO_ROW) & (sequence >= 0))
    outside = outside[~keys[outside].duplicated(keep="first")]
    return np.append(outside, NO_ROW)[keys[outside].get_indexer(keys)]


Key = Callable[[Trace, IntArray, str | None], Any]


def keys(
    trace: Trace,
    request: ViewRequest,
    rows: IntArray,
    known: Sequence[str],
    own: Mapping[str, tuple[str, Key]] | None = None,
) -> dict[str, Any]:
    """Column name → values of the ``rows``, for each grouping asked for. ``own`` are groupings that mean something else
    in a view: column and key. Raises UsageError for a grouping not in ``known``."""
    found, meaning = {}, {**_KEYS, **(_NATIVE_KEYS if request.native else {}), **(own or {})}
    for item in request.by:
        name, argument = split_grouping(item)
        if name not in known or name not in meaning:
            raise UsageError(f"this view cannot be grouped by {name!r}", f"known: {', '.join(known) or 'none'}")
        column, key = meaning[name]
        found[column] = key(trace, rows, argument)
    return found


def _text(column: str) -> Key:
    return lambda trace, rows, argument: texts(trace.codes(column), rows)


def _number(column: str) -> Key:
    def key(trace: Trace, rows: IntArray, argument: str | None) -> Any:
        values = trace.ints(column, _UNKNOWN)[rows]
        return pd.arrays.IntegerArray(np.where(values == _UNKNOWN, 0, values), values == _UNKNOWN)

    return key


def _stack(of: Callable[[Trace, IntArray], pd.Categorical]) -> Key:
    def key(trace: Trace, rows: IntArray, argument: str | None) -> pd.Categorical:
        if argument is None:
            return of(trace, rows)
        if not argument.isdigit() or not int(argument):
            raise UsageError(f"not a number of frames: {argument!r}", "write --by stack=5 for the five innermost")
        return innermost(of(trace, rows), int(argument))

    return key


def _label(trace: Trace, rows: IntArray, argument: str | None) -> pd.Categorical:
    nearest = np.append(nesting.nearest_on_path(trace.ints("parent"), _is_label(trace)), NO_ROW)[rows]
    names = trace.codes("name")
    codes = np.where(nearest == NO_ROW, -1, names.codes[nearest])
    return pd.Categorical.from_codes(codes, categories=pd.Index(names.values, dtype=object))


def _scope(trace: Trace, rows: IntArray, argument: str | None) -> pd.Categorical:
    return around(trace, rows, _is_label(trace), outermost_first=True)


def _is_label(trace: Trace) -> BoolArray:
    return trace.host & trace.rows("kind", ANNOTATION)


_UNKNOWN = np.iinfo(np.int64).min
_KEYS: dict[str, tuple[str, Key]] = {
    "shape": ("shapes", _text("shapes")),
    "stack": ("stack", _stack(stacks)),
    "thread": ("tid", _number("tid")),
    "stream": ("stream", _number("stream")),
    "overload": ("overload", lambda trace, rows, argument: calls.overloads(trace, rows)),
    "label": ("label", _label),
    "scope": ("scope", _scope),
    "module": ("module", _text("module")),
    "phase": ("phase", _text("phase")),
    "device": ("device", _text("device")),
    "step": ("step", _number("step")),
    "rank": ("rank", _number("rank")),
}
_NATIVE_KEYS: dict[str, tuple[str, Key]] = {"stack": ("stack", _stack(forward_stacks))}
