"""Public functions that combine several packages. ``perfkit_core`` exports them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.ranks.profile import Profile, Whole, opened
from perfkit_core.report.display import Display
from perfkit_core.report.summary import choose_views, summary_report

if TYPE_CHECKING:
    import pandas as pd


def summarize(
    profile: Trace | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    view: str,
    by: str | Iterable[str] = (),
    steps: Iterable[int] | None = None,
    pattern: str | None = None,
    kind: str | None = None,
    device: str | None = None,
    native: bool = False,
    limit: int | None = None,
    workers: int = 1,
    scheduler: str | None = None,
    **display: Any,
) -> pd.DataFrame:
    """Return the table of a view. Times are integers in ns, sizes are integers in bytes, and unknown values are NA.

    - ``profile``: a Trace, or one or more sources as for :func:`perfkit_core.load`, which are read rank by rank
    - ``by``: groupings of the view
    - ``steps``: numbers of the steps to count
    - ``pattern``, ``kind``, ``device``: RE2 patterns that select the events to count
    - ``native``: use the numbers of the framework's own profiler where they differ (docs/semantics.md)
    - ``limit``: maximum number of rows
    - ``workers``: number of processes that read ranks; ``scheduler``: address of a Dask cluster that reads them instead
    - ``display``: other fields of :class:`perfkit_core.report.display.Display`, such as ``sort`` or ``hide``

    Raises UsageError and SourceError.
    """
    (chosen,) = choose_views([view], single=True)
    if isinstance(profile, Trace):
        read: Profile = Whole(profile)
    else:
        sources = [profile] if isinstance(profile, (str, os.PathLike)) else list(profile)
        read = opened(sources, workers=workers, scheduler=scheduler)
    groupings = (by,) if isinstance(by, str) else tuple(by)
    request = ViewRequest(groupings, None if steps is None else tuple(steps), pattern, kind, device, native)
    table = summary_report(read, [chosen], request, Display(**display)).sections[0].table
    return table if limit is None else table.head(limit)
