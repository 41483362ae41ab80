"""Sections on a terminal, and progress beside them."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table as Drawn

from benchmarks.results import Check, Section, Table

_MARK = {True: "yes", False: "no", None: "?"}


def progress(line: str) -> None:
    """Say on stderr what goes on, so that stdout holds the results alone."""
    print(line, file=sys.stderr, flush=True)


def show(section: Section) -> None:
    """Print a section."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(f"\n[bold]{section.title}[/bold]\n{section.about}\n")
    for table in section.tables:
        console.print(_drawn(table))
        if table.note:
            console.print(table.note)
    if section.checks:
        console.print(_drawn(checks_table(section.checks)))


def checks_table(checks: tuple[Check, ...]) -> Table:
    """Targets as a table."""
    rows = tuple((one.what, one.target, one.measured, _MARK[one.holds]) for one in checks)
    return Table("Targets", ("", "target", "measured", "holds"), rows)


def _drawn(table: Table) -> Drawn:
    drawn = Drawn(title=table.title, title_justify="left")
    for at, name in enumerate(table.columns):
        text = at == 0 or name == "does"
        drawn.add_column(name, justify="left" if text else "right", overflow="fold")
    for row in table.rows:
        drawn.add_row(*row)
    return drawn
