"""Comma-separated values: one section, its own column names, raw numbers, nothing where unknown."""

from __future__ import annotations

import csv
import io

from perfkit_core.errors import UsageError
from perfkit_core.renderers.values import records
from perfkit_core.report.model import Report


def render(report: Report) -> str:
    """The table of the only section. Raises UsageError where there are several."""
    if len(report.sections) != 1:
        names = ", ".join(section.name for section in report.sections) or "none"
        raise UsageError(f"csv holds one table, here are {len(report.sections)} ({names})", "choose one with --view")
    names_of_columns, rows = records(report.sections[0].table)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names_of_columns)
    writer.writerows(rows)
    return out.getvalue()
