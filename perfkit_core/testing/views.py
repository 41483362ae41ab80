"""Does a view return the table that its contract promises?"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from perfkit_core.errors import UsageError
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.testing.require import require
from perfkit_core.trace import Trace


def check_view(view: View, trace: Trace) -> None:
    """On the trace and on one without events, plain and by each grouping. Raises AssertionError."""
    require(bool(view.name and view.title and view.description), "a view needs a name, a title and a description")
    for some in (trace, trace.slice(0, 0)):
        for request in _requests(view):
            check_table(view, view.table(some, request))
        require(bool(view.explain_empty(some)), f"{view.name} does not say why it is empty")
    if view.groupings:
        _check_refused(view, trace)


def _requests(view: View) -> Iterator[ViewRequest]:
    yield ViewRequest()
    for grouping in view.groupings:
        yield ViewRequest(by=(grouping,))


def check_table(view: View, table: pd.DataFrame) -> None:
    """Columns are unique; ns, bytes and calls are integers; ratios are floats; the order is a column."""
    require(table.columns.is_unique, f"{view.name} has a column twice: {list(table.columns)}")
    require(view.order is None or view.order in table.columns, f"{view.name} has no column {view.order}")
    for name, kind in table.dtypes.items():
        column = str(name)
        if column.endswith(("_ns", "_bytes")) or column in ("calls", "bytes"):
            sound = pd.api.types.is_integer_dtype(kind) or not len(table)
            require(sound, f"{view.name}.{column} is {kind}, not an integer")
        if column.endswith("_ratio") and len(table):
            require(pd.api.types.is_float_dtype(kind), f"{view.name}.{column} is {kind}, not a float")


def _check_refused(view: View, trace: Trace) -> None:
    try:
        view.table(trace, ViewRequest(by=("no such grouping",)))
    except UsageError:
        return
    raise AssertionError(f"{view.name} accepts a grouping that it does not have")
