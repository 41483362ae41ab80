"""Print benchmark sections and progress to a terminal."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table as Drawn
from rich.text import Text

from benchmarks.results import Check, Section, Table, running_text

_MARK = {True: "yes", False: "no", None: "?"}


def progress(line: str) -> None:
    """Print a line to stderr, so that stdout contains only results."""
    print(line, file=sys.stderr, flush=True)


def show(section: Section) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160, markup=False, highlight=False)
    console.print(f"\n{section.title}", style="bold")
    console.print(running_text(section.about))
    for table in (*section.tables, *([checks_table(section.checks)] if section.checks else [])):
        console.print(f"\n{table.title}" if table.title else "")
        console.print(_drawn(table))
        if table.note:
            console.print(table.note)


def checks_table(checks: tuple[Check, ...]) -> Table:
    """Return the targets as a table."""
    rows = tuple((one.what, one.target, one.measured, _MARK[one.holds]) for one in checks)
    return Table("Targets", ("", "target", "measured", "holds"), rows)


def _drawn(table: Table) -> Drawn:
    drawn = Drawn()
    for at, name in enumerate(table.columns):
        text = at == 0 or name == "does"
        drawn.add_column(name, justify="left" if text else "right", overflow="fold")
    for row in table.rows:
        drawn.add_row(*map(Text, row))
    return drawn
