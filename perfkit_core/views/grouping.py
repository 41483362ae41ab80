"""Groupings (``--by``): the key columns that each grouping adds to a table, including Python stacks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from perfkit_core.base.algorithms import nesting, trees
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.base.system.outside_text import whole_number
from perfkit_core.errors import UsageError
from perfkit_core.plugins.contracts import ViewRequest, split_grouping
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.schema import ANNOTATION, BACKWARD, FORWARD, NESTED_KINDS, PYTHON
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.operators import calls
from perfkit_core.views.select import check_groupings
from perfkit_core.views.tables import categorical, text_column_at, texts
from perfkit_core.views.user_code import SEPARATOR
from perfkit_core.views.user_code import innermost as line_of

_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")
_UNKNOWN: Final = np.iinfo(np.int64).min

Key = Callable[[Trace, IntArray, str | None], Any]


def keys(
    trace: Trace,
    request: ViewRequest,
    rows: IntArray,
    groupings: Sequence[str],
    view_keys: Mapping[str, tuple[str, Key]] | None = None,
) -> dict[str, Any]:
    """Return the key columns of ``rows`` for the requested groupings, by column name. ``view_keys`` has the groupings
    of this view alone, each with its column name and key function. Raises UsageError for an unknown grouping."""
    columns, meaning = {}, {**_KEYS, **(_NATIVE_KEYS if request.native else {}), **(view_keys or {})}
    check_groupings("this view", request, [name for name in groupings if name in meaning])
    for name, argument in map(split_grouping, request.by):
        column, key = meaning[name]
        columns[column] = key(trace, rows, argument)
    return columns


def is_frame(trace: Trace) -> BoolArray:
    return trace.rows("kind", PYTHON) | (trace.rows("kind", FORWARD) & trace.rows("category", "python_function"))


def called(frame: str) -> str:
    """Return the name of a frame without object addresses, so that a method has one name for all objects."""
    return _ADDRESS.sub("", frame)


def stacks(trace: Trace, rows: IntArray) -> pd.Categorical:
    """Return the Python stack of each row (null if none), shape (len(rows),). The innermost frame comes first. Frames
    are separated by ``;``, and object addresses are removed. If no row has a recorded stack, the stack is built from
    the Python frames that were recorded as events around the row."""
    recorded = as_recorded(trace, rows)
    return categorical(recorded.codes, [called(text) for text in recorded.categories])


def as_recorded(trace: Trace, rows: IntArray) -> pd.Categorical:
    """Return the result of :func:`stacks`, but keep object addresses in frame names (for example ``at 0x7f1c``)."""
    recorded = trace.codes("stack")
    if (recorded.codes[rows] >= 0).any():
        return innermost(texts(recorded, rows), None)
    return around(trace, rows, is_frame(trace))


def innermost(stack: pd.Categorical, count: int | None) -> pd.Categorical:
    frames = [[frame for frame in text.split(SEPARATOR) if frame] for text in stack.categories]
    return categorical(stack.codes, [SEPARATOR.join(parts[:count]) for parts in frames])


def around(trace: Trace, rows: IntArray, member: BoolArray, outermost_first: bool = False) -> pd.Categorical:
    """Return the names of the ``member`` events around each row, separated by ``;`` (null if there are none)."""
    names = trace.codes("name")
    tree = trees.merge(trace.ints("parent"), names.codes.astype(np.int64), member)
    paths: list[str] = []
    for above, key in zip(tree.parent.tolist(), tree.key.tolist(), strict=True):
        ends = [names.values[key]] if above == NO_ROW else [names.values[key], paths[above]]
        paths.append(SEPARATOR.join(ends[::-1] if outermost_first else ends))
    nearest = nesting.nearest_on_path(trace.ints("parent"), member)[rows]
    return categorical(np.append(tree.node, -1)[nearest], paths)


def forward_stacks(trace: Trace, rows: IntArray) -> pd.Categorical:
    """Return Python stacks as in torch's tables. Rows in a backward node get the stack of its forward operator, or null
    if this operator is unknown. The forward operator is the first event with the node's sequence number that is not in
    a backward node. Other rows get their own stack (:func:`as_recorded`)."""
    parent, names, sequence = trace.ints("parent"), trace.codes("name"), trace.ints("sequence")
    # A backward node has a parent whose name ends with its name: XBackward in "evaluate_function: XBackward".
    backward = np.flatnonzero(trace.host & trace.rows("phase", BACKWARD) & (parent != NO_ROW))
    width = len(names.values)
    pairs, inverse = np.unique(
        names.codes[parent[backward]].astype(np.int64) * width + names.codes[backward], return_inverse=True
    )
    callers = ((names.values[pair // width], names.values[pair % width]) for pair in pairs.tolist())
    after_it = np.array([caller != name and caller.endswith(name) for caller, name in callers], np.bool_)
    is_node = np.zeros(len(trace), np.bool_)
    is_node[backward[after_it[inverse]]] = True
    node = nesting.nearest_on_path(parent, is_node)

    identity = pd.MultiIndex.from_arrays([trace.ints("rank"), sequence])
    outside = np.flatnonzero(trace.host & trace.rows("kind", *NESTED_KINDS) & (node == NO_ROW) & (sequence >= 0))
    outside = outside[~identity[outside].duplicated(keep="first")]
    forward = np.append(outside, NO_ROW)[identity[outside].get_indexer(identity)]

    source = np.where(node == NO_ROW, np.arange(len(trace)), np.append(forward, NO_ROW)[node])[rows]
    recorded = as_recorded(trace, np.maximum(source, 0))
    codes = np.where(source == NO_ROW, -1, recorded.codes)
    return pd.Categorical.from_codes(codes, categories=recorded.categories)


def event_values(trace: Trace, column: str, rows: IntArray) -> Any:
    """Return the values of a column of the event table, shape (len(rows),): texts as a categorical, and integers as an
    array, which is nullable if the column of the schema is."""
    declared = schema.SCHEMA.field(column)
    if not pa.types.is_integer(declared.type):
        return texts(trace.codes(column), rows)
    if not declared.nullable:
        return trace.ints(column)[rows]
    values = trace.ints(column, _UNKNOWN)[rows]
    return pd.arrays.IntegerArray(np.where(values == _UNKNOWN, 0, values), values == _UNKNOWN)


def _recorded(column: str) -> Key:
    return lambda trace, rows, argument: event_values(trace, column, rows)


def _launching_operator(trace: Trace, rows: IntArray, argument: str | None) -> pd.Categorical:
    return text_column_at(calls.operator_names(trace), calls.operator_rows(trace)[rows])


def _stack(of: Callable[[Trace, IntArray], pd.Categorical]) -> Key:
    def key(trace: Trace, rows: IntArray, argument: str | None) -> pd.Categorical:
        if argument is None:
            return of(trace, rows)
        frames = whole_number(argument)
        if not frames:
            raise UsageError(
                f"not a number of frames: {argument!r}", "write --by stack=5 for the five innermost frames"
            )
        return innermost(of(trace, rows), frames)

    return key


def _line(trace: Trace, rows: IntArray, argument: str | None) -> pd.Categorical:
    stack = stacks(trace, rows)
    return categorical(stack.codes, [line_of(text, trace.meta.framework) for text in stack.categories])


def _label(trace: Trace, rows: IntArray, argument: str | None) -> pd.Categorical:
    nearest = np.append(nesting.nearest_on_path(trace.ints("parent"), _is_label(trace)), NO_ROW)[rows]
    return text_column_at(trace.codes("name"), nearest)


def _is_label(trace: Trace) -> BoolArray:
    return trace.host & trace.rows("kind", ANNOTATION)


_KEYS: Final[dict[str, tuple[str, Key]]] = {
    "shape": ("shapes", _recorded("shapes")),
    "stack": ("stack", _stack(stacks)),
    "line": ("line", _line),
    "thread": ("tid", _recorded("tid")),
    "stream": ("stream", _recorded("stream")),
    "overload": ("overload", lambda trace, rows, argument: calls.overloads(trace, rows)),
    "label": ("label", _label),
    "scope": ("scope", lambda trace, rows, argument: around(trace, rows, _is_label(trace), outermost_first=True)),
    "module": ("module", _recorded("module")),
    "phase": ("phase", _recorded("phase")),
    "device": ("device", _recorded("device")),
    "step": ("step", _recorded("step")),
    "rank": ("rank", _recorded("rank")),
    "category": ("category", _recorded("category")),
    "operator": ("operator", _launching_operator),
}
_NATIVE_KEYS: Final[dict[str, tuple[str, Key]]] = {"stack": ("stack", _stack(forward_stacks))}
