"""Write benchmark sections as Markdown for docs/performance.md."""

from __future__ import annotations

import textwrap
from pathlib import Path

from benchmarks.console import checks_table
from benchmarks.machine import Machine, sentence
from benchmarks.results import Section, Table, running_text

WIDTH = 120
"""Line width of prose in the documentation."""

FIGURES = "figures"
"""Name of the marks around the generated part of a page."""


def page(found: list[tuple[Section, Machine]]) -> str:
    """Return all sections as Markdown. The targets of all sections are listed before the sections."""
    checks = tuple(check for section, _ in found for check in section.checks)
    parts = ["## Targets", table_of(checks_table(checks)), *(_section(section, at) for section, at in found)]
    return "\n\n".join(part for part in parts if part) + "\n"


def write_into(path: Path, text: str, name: str = FIGURES) -> None:
    """Replace the text between the marks of this name in a page. Raises ValueError if the page has no such marks."""
    whole, first, last = path.read_text(encoding="utf-8"), f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    begin, end = whole.find(first), whole.find(last)
    if begin < 0 or end < begin:
        raise ValueError(f"{path}: the page needs the marks {first} and {last}")
    path.write_text(f"{whole[:begin]}{first}\n{text}{whole[end:]}", encoding="utf-8")


def versions(machine: Machine) -> str:
    """Return the names and versions of the measured programs."""
    return ", ".join(f"{name} {version}" for name, version in machine.libraries.items())


def _section(section: Section, machine: Machine) -> str:
    tables = [part for table in section.tables for part in _titled(table)]
    about = map(_paragraph, section.about.strip().split("\n\n"))
    return "\n\n".join([f"## {section.title}", *about, _paragraph(f"Measured {sentence(machine)}"), *tables])


def _paragraph(text: str) -> str:
    if text.startswith("- "):  # a list, whose lines are short enough
        return text.replace("``", "`")
    return textwrap.fill(running_text(text), WIDTH, break_long_words=False, break_on_hyphens=False)


def _titled(table: Table) -> list[str]:
    title = [f"**{table.title}**"] if table.title else []
    return [*title, table_of(table), *([table.note] if table.note else [])]


def table_of(table: Table) -> str:
    marks = ["---", *("---:" if name != "does" else "---" for name in table.columns[1:])]
    lines = [table.columns, marks, *table.rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
