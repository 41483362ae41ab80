"""Comma-separated values: one section, its own column names, raw numbers, nothing where unknown."""

from __future__ import annotations

import csv
import io

from perfkit_core.errors import UsageError
from perfkit_core.renderers.cells import records
from perfkit_core.report.model import Report


def render(report: Report) -> str:
    """The table of the only section. Raises UsageError where there are several."""
    tables = [section for section in report.sections if not section.only_text]
    if len(tables) != 1:
        names = ", ".join(section.name for section in tables) or "none"
        raise UsageError(f"csv holds one table, here are {len(tables)} ({names})", "choose one with --view")
    names_of_columns, rows = records(tables[0].table)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names_of_columns)
    writer.writerows(rows)
    return out.getvalue()
