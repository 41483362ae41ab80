"""What the rows of a table are split by (``--by``): the key columns of the chosen events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from perfkit_core.analyses import stacks
from perfkit_core.analyses.tables import texts
from perfkit_core.errors import UsageError
from perfkit_core.plugins.contracts import ViewRequest, split_grouping
from perfkit_core.trace import IntArray, Trace

Key = Callable[[Trace, IntArray, str | None], Any]


def keys(trace: Trace, request: ViewRequest, rows: IntArray, known: Sequence[str]) -> dict[str, Any]:
    """Column name → values of the ``rows``, for each grouping asked for. Raises UsageError for one not in ``known``."""
    found = {}
    for item in request.by:
        name, argument = split_grouping(item)
        if name not in known or name not in _KEYS:
            raise UsageError(f"this view cannot be grouped by {name!r}", f"known: {', '.join(known) or 'none'}")
        column, key = _KEYS[name]
        found[column] = key(trace, rows, argument)
    return found


def _text(column: str) -> Key:
    return lambda trace, rows, argument: texts(trace.codes(column), rows)


def _number(column: str) -> Key:
    def key(trace: Trace, rows: IntArray, argument: str | None) -> Any:
        values = trace.ints(column, _UNKNOWN)[rows]
        return pd.arrays.IntegerArray(np.where(values == _UNKNOWN, 0, values), values == _UNKNOWN)

    return key


def _stack(trace: Trace, rows: IntArray, argument: str | None) -> pd.Categorical:
    whole = stacks.stacks(trace, rows)
    if argument is None:
        return whole
    if not argument.isdigit() or not int(argument):
        raise UsageError(f"not a number of frames: {argument!r}", "write --by stack=5 for the five innermost frames")
    return stacks.innermost(whole, int(argument))


_UNKNOWN = np.iinfo(np.int64).min
_KEYS: dict[str, tuple[str, Key]] = {
    "shape": ("shapes", _text("shapes")),
    "stack": ("stack", _stack),
    "thread": ("tid", _number("tid")),
    "module": ("module", _text("module")),
    "phase": ("phase", _text("phase")),
    "device": ("device", _text("device")),
    "step": ("step", _number("step")),
    "rank": ("rank", _number("rank")),
}
