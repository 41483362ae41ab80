"""What the rows of a table are split by (``--by``): the key columns of the chosen events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.errors import UsageError
from perfkit_core.model.schema import ANNOTATION
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import ViewRequest, split_grouping
from perfkit_core.views.code import stacks
from perfkit_core.views.code.stacks import forward_stacks
from perfkit_core.views.operators import overloads
from perfkit_core.views.tables import texts

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
        return stacks.innermost(of(trace, rows), int(argument))

    return key


def _label(trace: Trace, rows: IntArray, argument: str | None) -> pd.Categorical:
    nearest = np.append(nesting.nearest_on_path(trace.ints("parent"), _is_label(trace)), NO_ROW)[rows]
    names = trace.codes("name")
    codes = np.where(nearest == NO_ROW, -1, names.codes[nearest])
    return pd.Categorical.from_codes(codes, categories=pd.Index(names.values, dtype=object))


def _scope(trace: Trace, rows: IntArray, argument: str | None) -> pd.Categorical:
    return stacks.around(trace, rows, _is_label(trace), outermost_first=True)


def _is_label(trace: Trace) -> BoolArray:
    return trace.host & trace.rows("kind", ANNOTATION)


_UNKNOWN = np.iinfo(np.int64).min
_KEYS: dict[str, tuple[str, Key]] = {
    "shape": ("shapes", _text("shapes")),
    "stack": ("stack", _stack(stacks.stacks)),
    "thread": ("tid", _number("tid")),
    "stream": ("stream", _number("stream")),
    "overload": ("overload", lambda trace, rows, argument: overloads.overloads(trace, rows)),
    "label": ("label", _label),
    "scope": ("scope", _scope),
    "module": ("module", _text("module")),
    "phase": ("phase", _text("phase")),
    "device": ("device", _text("device")),
    "step": ("step", _number("step")),
    "rank": ("rank", _number("rank")),
}
_NATIVE_KEYS: dict[str, tuple[str, Key]] = {"stack": ("stack", _stack(forward_stacks))}
