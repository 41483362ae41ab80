"""Which columns of a view does the profile hold nothing of? Told by the whole view, before anything of it is shown."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from perfkit_core import schema
from perfkit_core.plugins.contracts import ViewRequest


def not_recorded(holds: Callable[[str], bool], whole: pd.DataFrame, request: ViewRequest) -> tuple[str, ...]:
    """Names of columns: the view has nothing there, and neither have the events; ``holds`` tells of one of their
    columns whether they have.

    A request for some of the events cannot tell: what it leaves out may hold it.
    """
    if not of_all(request):
        return ()
    empty = [str(name) for name in whole.columns if whole[name].isna().all()]
    return tuple(name for name in empty if not (name in schema.COLUMN_NAMES and holds(name)))


def of_all(request: ViewRequest) -> bool:
    """Whether all events are asked for, whatever they are grouped by."""
    return request.steps is None and not any((request.pattern, request.kind, request.device))
