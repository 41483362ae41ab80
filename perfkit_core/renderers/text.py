"""Plain text: aligned tables for a terminal, a pipe or a log.

Numbers are never cut. Long names are, in the middle, because both ends of a kernel's name tell what it is.
"""

from __future__ import annotations

import io
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfkit_core.renderers import parts
from perfkit_core.renderers.units import Column, columns, visible
from perfkit_core.report.model import Report, Section

_LONGEST: Final = 80
"""Cells of a text column where no terminal limits the width."""
_SHORTEST: Final = 24
_GAP: Final = 3


def render(report: Report, terminal_width: int | None = None) -> str:
    """The report as text. ``terminal_width``: fit names into it and use bold (None: full width, no escape codes)."""
    console = Console(
        file=io.StringIO(),
        width=100_000,
        color_system=None if terminal_width is None else "standard",
        force_terminal=terminal_width is not None,
        no_color=True,
        legacy_windows=False,
    )
    _head(console, report)
    for section in report.sections:
        _section(console, section, terminal_width)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


def _head(console: Console, report: Report) -> None:
    _line(console, visible(report.title), "bold")
    for source in report.sources:
        parts_of_line = (parts.label(report, source), parts.facts(source))
        _line(console, ": ".join(part for part in parts_of_line if part))
    findings = [(parts.label(report, source), finding) for source in report.sources for finding in source.quality]
    if findings:
        _line(console, "")
        _line(console, "Data quality", "bold")
    for label, finding in findings:
        _line(console, f"  ! {label + ': ' if label else ''}{visible(finding.message)} [{visible(finding.code)}]")
    if report.headline:
        _line(console, "")
    for sentence in report.headline:
        _line(console, visible(sentence))


def _section(console: Console, section: Section, width: int | None) -> None:
    _line(console, "")
    _line(console, visible(section.title), "bold")
    if section.note:
        _line(console, visible(section.note))
    if section.table.empty:
        _line(console, visible(parts.reason(section)))
        return
    console.print(_table(columns(parts.shown(section)), width))
    for line in (parts.more(section, " (--limit 0 shows all)"), parts.unknown(section)):
        if line:
            _line(console, line)


def _table(shown: list[Column], width: int | None) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    longest = _name_width(shown, width)
    for column in shown:
        table.add_column(Text(visible(column.label)), justify="right" if column.numeric else "left", no_wrap=True)
    texts = [column.cells if column.numeric else [cut(cell, longest) for cell in column.cells] for column in shown]
    for row in zip(*texts, strict=True):
        table.add_row(*(Text(cell) for cell in row))
    return table


def _name_width(shown: list[Column], width: int | None) -> int:
    """Characters that a text column may take: all share what the numbers leave of the terminal's width."""
    if width is None:
        return _LONGEST
    needed = {column.name: max(map(cell_len, (column.label, *column.cells))) for column in shown}
    names = sorted(needed[column.name] for column in shown if not column.numeric)
    free = width - _GAP * (len(shown) - 1) - sum(needed[column.name] for column in shown if column.numeric)
    for index, size in enumerate(names):  # short columns take what they need, the long ones share the rest
        share = free // (len(names) - index)
        if size > share:
            return max(_SHORTEST, share)
        free -= size
    return max(names, default=_LONGEST)


def cut(text: str, length: int) -> str:
    """``text`` in at most ``length`` characters, the middle replaced by …"""
    if len(text) <= length:
        return text
    tail = (length - 1) // 2
    return f"{text[: length - 1 - tail]}…{text[len(text) - tail :]}"


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style), soft_wrap=True)
