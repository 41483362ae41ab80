"""Public functions that combine several packages, exported by ``perfkit_core``."""

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
    """Return the table of a view of a Trace, or of the sources that :func:`perfkit_core.load` reads, rank by rank.

    ``by``: groupings of the view; ``steps``: step numbers; ``pattern``, ``kind``, ``device``: RE2 filters of events;
    ``native``: the framework's own numbers where they differ (docs/semantics); ``limit``: number of rows; ``workers``:
    processes that read ranks; ``scheduler``: address of a Dask cluster to read them instead; other options as in
    :class:`perfkit_core.report.display.Display`: ``sort`` (descending unless ``ascending``), ``show``, ``hide``,
    ``minimums``, ``columns``, ``average`` and, for trees, ``start``, ``trim``, ``depth``, ``displayed_only``. Times are
    integer ns, sizes bytes, unknown is NA. Raises UsageError and SourceError.
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
