"""Views put together as a Report, sorted and cut as asked; and the same for Python, as a DataFrame."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pandas as pd

from perfkit_core.errors import UsageError
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.report.facts import source
from perfkit_core.report.model import Report, Section
from perfkit_core.trace import Trace

ROWS: Final = 20
"""Rows of a table that people are shown when they do not ask for another number."""


def summary_report(
    trace: Trace,
    views: Sequence[View],
    request: ViewRequest,
    sort: str | None = None,
    ascending: bool = False,
    limit: int | None = None,
) -> Report:
    """One section a view. ``sort`` and ``request.by`` apply to the views that know them.

    Raises UsageError if none does. ``limit`` is how many rows people are shown first (None: all); the tables are whole.
    """
    _check_groupings(views, request.by)
    tables = [view.table(trace, _understood(view, request)) for view in views]
    _check_sort(tables, sort)
    sections = tuple(
        Section(
            name=view.name,
            title=view.title,
            table=_sorted(table, sort if sort in table.columns else None, view.order, ascending),
            note=_sentence(view.description),
            empty=_why_empty(view, trace, request) if table.empty else "",
            limit=limit,
        )
        for view, table in zip(views, tables, strict=True)
    )
    return Report(trace.meta.source, (source(trace),), sections)


def summarize(
    profile: Trace | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    view: str,
    by: str | Iterable[str] = (),
    steps: Iterable[int] | None = None,
    pattern: str | None = None,
    sort: str | None = None,
    limit: int | None = None,
    ascending: bool = False,
) -> pd.DataFrame:
    """The table of a view, from a Trace or from what :func:`perfkit_core.load` reads.

    ``by``: groupings of the view; ``steps``: step numbers; ``pattern``: RE2 on the name; ``sort``: a column (descending
    unless ``ascending``); ``limit``: number of rows. Times are integer ns, sizes bytes, unknown is NA.
    Raises UsageError and SourceError.
    """
    from perfkit_core.loading import load

    trace = profile if isinstance(profile, Trace) else load(profile)
    groupings = (by,) if isinstance(by, str) else tuple(by)
    request = ViewRequest(groupings, None if steps is None else tuple(steps), pattern)
    report = summary_report(trace, choose_views([view]), request, sort, ascending)
    table = report.sections[0].table
    return table if limit is None else table.head(limit)


def choose_views(names: Iterable[str]) -> list[View]:
    """The views of these names, ``all`` for every one, each once. Raises UsageError."""
    known = get_plugins().views()
    wanted = dict.fromkeys(part for name in names for part in (known if name == "all" else [name]))
    for name in wanted:
        if name not in known:
            raise UsageError(f"there is no view {name!r}", f"known: {', '.join(known)}, all")
    return [known[name] for name in wanted]


def cut(report: Report, limit: int | None) -> Report:
    """The same report with at most ``limit`` rows in each table, for formats that show tables whole."""
    if limit is None:
        return report
    return replace(report, sections=tuple(replace(s, table=s.table.head(limit)) for s in report.sections))


def read_from(report: Report, paths: Sequence[str | Path]) -> Report:
    """Name all the files of a profile that was read from several; machine formats get them as a list."""
    if len(paths) < 2:
        return report
    names = [str(path) for path in paths]
    return replace(report, title=f"{names[0]} and {len(names) - 1} more", data={**report.data, "source": names})


def _understood(view: View, request: ViewRequest) -> ViewRequest:
    return replace(request, by=tuple(name for name in request.by if name in view.groupings))


def _check_groupings(views: Sequence[View], by: Sequence[str]) -> None:
    known = list(dict.fromkeys(name for view in views for name in view.groupings))
    for name in by:
        if name not in known:
            names = ", ".join(view.name for view in views)
            raise UsageError(f"{names} cannot be grouped by {name!r}", f"known: {', '.join(known) or 'no groupings'}")


def _check_sort(tables: Sequence[pd.DataFrame], sort: str | None) -> None:
    columns = list(dict.fromkeys(str(name) for table in tables for name in table.columns))
    if sort is not None and sort not in columns:
        raise UsageError(f"there is no column {sort!r} to sort by", f"columns: {', '.join(columns)}")


def _sorted(table: pd.DataFrame, sort: str | None, order: str | None, ascending: bool) -> pd.DataFrame:
    column = sort or order
    if column is None or column not in table.columns:
        return table
    return table.sort_values(column, ascending=ascending, kind="stable", na_position="last", ignore_index=True)


def _why_empty(view: View, trace: Trace, request: ViewRequest) -> str:
    if request.pattern is None and request.steps is None:
        return view.explain_empty(trace)
    return "nothing here is of the steps and names that were asked for"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""
