"""Plain text: aligned tables for a terminal, a pipe or a log.

Numbers are never cut. Long names are (see ``shortening``), and a terminal may have no room for every column.

What of a table fits a terminal? Which columns, and how wide the names in them are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size

from perfkit_core.language.messages import say
from perfkit_core.renderers import parts
from perfkit_core.renderers import parts as sources
from perfkit_core.renderers.cells import cut, visible
from perfkit_core.renderers.table_columns import ShownColumn, columns
from perfkit_core.report.model import Report, Section

GAP: Final = "   "
_LONGEST: Final = 80
"""Cells of a text column where no terminal limits the width."""
_SHORTEST: Final = 24
"""Cells that a name is not cut below."""
_KEY: Final = 8
"""Text this short (a device, a direction) costs no more than a number and tells rows apart; longer text waits."""


def fitting(shown: Sequence[ShownColumn], width: int | None) -> tuple[list[ShownColumn], list[ShownColumn]]:
    """The columns that a terminal has room for with names at their shortest, two at least, and the rest.

    The first column and the first long text are what a row is about; other long text gives way to the numbers.
    """
    if width is None:
        return list(shown), []
    later = [column for column in shown if _is_long(column)][1:]
    wanted = [*(column for column in shown if column not in later), *later]
    needed = -len(GAP)
    names: set[str] = set()
    for column in wanted:
        size = full_width(column)
        needed += len(GAP) + (size if column.numeric else min(size, _SHORTEST))
        if needed > width and len(names) > 1:
            break
        names.add(column.name)
    return [c for c in shown if c.name in names], [c for c in shown if c.name not in names]


def name_width(shown: Sequence[ShownColumn], width: int | None) -> int:
    """Characters that a text column may take: all share what the numbers leave of the terminal's width."""
    if width is None:
        return _LONGEST
    names = sorted(full_width(column) for column in shown if not column.numeric)
    free = width - len(GAP) * (len(shown) - 1) - sum(full_width(column) for column in shown if column.numeric)
    for index, size in enumerate(names):  # short columns take what they need, the long ones share the rest
        share = free // (len(names) - index)
        if size > share:
            return max(_SHORTEST, share)
        free -= size
    return max(names, default=_LONGEST)


def full_width(column: ShownColumn) -> int:
    """Cells of a terminal that the column takes uncut, with its heading."""
    return max(map(cell_len, (visible(column.label), *column.cells)))


def _is_long(column: ShownColumn) -> bool:
    return not column.numeric and max(map(cell_len, column.cells), default=0) > _KEY


_NOTE: Final = "note"
"""The column of sentences, of which no part may be missing."""


def render(report: Report, terminal_width: int | None = None) -> str:
    """The report as text. ``terminal_width``: fit names into it and use bold (None: full width, no escape codes)."""
    lines = [*_head(report, terminal_width is not None)]
    for section in report.sections:
        lines += _section(section, terminal_width)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _head(report: Report, styled: bool) -> Iterator[str]:
    yield _bold(visible(report.title), styled)
    for source in report.sources:
        yield ": ".join(part for part in (parts.label(report, source), parts.facts(source)) if part)
    findings = sources.findings(report)
    if findings:
        yield from ("", _bold(say("Data quality"), styled))
    for finding in findings:
        label = f"{finding.label}: " if finding.label else ""
        yield f"  ! {label}{visible(finding.text)} [{visible(finding.code)}]"
    said = (*report.headline, *report.warnings)
    if said:
        yield ""
    yield from map(visible, said)


def _section(section: Section, width: int | None) -> Iterator[str]:
    yield from ("", _bold(visible(section.title), width is not None))
    if section.note:
        yield visible(section.note)
    yield from map(visible, section.lines)
    yield from (f"    {visible(line)}" for line in section.code.splitlines())
    if section.only_text:
        return
    if section.table.empty:
        yield visible(parts.reason(section))
        return
    rows = parts.shown(section)
    fits, left = fitting(columns(rows, section.columns, unit=section.unit), width)
    yield from _table(fits, width)
    yield from filter(None, (parts.more(section, say(" (--limit 0 shows all)")), _too_wide(left)))
    yield from parts.unknown(section, rows)


def _too_wide(left: list[ShownColumn]) -> str:
    names = say(", ").join(visible(column.label) for column in left)
    return say("Too wide for this terminal: {columns} (--format markdown shows all)", columns=names) if left else ""


def _table(shown: list[ShownColumn], width: int | None) -> Iterator[str]:
    """Aligned by hand: a table library takes half a millisecond a row, and tables have tens of thousands."""
    longest = name_width(shown, width)
    whole = _NOTE if width is None else None
    aligned = [_aligned(column, full_width(column) if column.name == whole else longest) for column in shown]
    head, *rows = (GAP.join(row) for row in zip(*aligned, strict=True))
    yield _bold(head, width is not None)
    yield "─" * cell_len(head)
    yield from rows


def _aligned(column: ShownColumn, longest: int) -> list[str]:
    """Heading and cells in the same width: numbers to the right, names to the left and cut."""
    texts = [visible(column.label), *column.cells]
    if not column.numeric:
        texts = [cut(text, longest) for text in texts]
    size = max(map(cell_len, texts))
    if column.numeric:
        return [" " * (size - cell_len(text)) + text for text in texts]
    return [set_cell_size(text, size) for text in texts]


def _bold(text: str, styled: bool) -> str:
    return f"\x1b[1m{text}\x1b[0m" if styled and text else text
