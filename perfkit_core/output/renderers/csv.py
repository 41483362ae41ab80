"""Write one table as CSV. The header contains the column ids. Numbers are not rounded. Unknown values are empty.
A text that a spreadsheet would run as a formula gets an apostrophe."""

from __future__ import annotations

from perfkit_core.base.system import outside_text
from perfkit_core.errors import UsageError
from perfkit_core.output.renderers.cells import records
from perfkit_core.trace.model.report_data import Report


def render(report: Report) -> str:
    """Return the only table of a report as CSV. Raises UsageError if the report has several tables or none."""
    tables = [section for section in report.sections if not section.only_text]
    if len(tables) != 1:
        names = ", ".join(section.name for section in tables) or "none"
        raise UsageError(f"CSV can contain only one table, not {len(tables)} ({names})", "choose a table with --view")
    names_of_columns, rows = records(tables[0])
    return outside_text.rows((names_of_columns, *rows))
