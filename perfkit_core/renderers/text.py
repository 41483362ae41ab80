"""Plain text: aligned tables for a terminal, a pipe or a log.

Numbers are never cut. Long names are (see ``cells.cut``), and a terminal may not have room for every column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size

from perfkit_core.language.messages import say
from perfkit_core.renderers import parts
from perfkit_core.renderers.cells import cut, visible
from perfkit_core.renderers.table_columns import ShownColumn, columns
from perfkit_core.report.model import Report, Section

GAP: Final = "   "
_LONGEST: Final = 80
"""Width of a text column if no terminal limits it."""
_SHORTEST: Final = 24
"""Names are not cut to fewer characters."""
_KEY: Final = 8
"""Text this short (a device, a direction) takes no more room than a number; longer text is shown last."""


def fitting(shown: Sequence[ShownColumn], width: int | None) -> tuple[list[ShownColumn], list[ShownColumn]]:
    """Return the columns that fit with names at their shortest, at least two, and the columns that do not fit.

    Long text other than the first is dropped before numbers.
    """
    if width is None:
        return list(shown), []
    later = [column for column in shown if not column.numeric and max(map(cell_len, column.cells), default=0) > _KEY][
        1:
    ]
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
    """Return the characters that a text column may take; text columns share what the numbers leave of the width."""
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
    """Return the terminal cells of the uncut column, its heading included."""
    return max(map(cell_len, (visible(column.label), *column.cells)))


_NOTE: Final = "note"
"""The column of sentences, which are never cut."""


def render(report: Report, terminal_width: int | None = None) -> str:
    """Return the report as text. ``terminal_width``: fit names into it, use bold (None: full width, plain)."""
    styled = terminal_width is not None
    lines = [_bold(visible(report.title), styled)]
    lines += [parts.source_line(report, source) for source in report.sources]
    findings = parts.findings(report)
    if findings:
        lines += ["", _bold(say("Data quality"), styled)]
    for finding in findings:
        label = f"{finding.label}: " if finding.label else ""
        lines.append(f"  ! {label}{visible(finding.text)} [{visible(finding.code)}]")
    sentences = (*report.headline, *report.warnings)
    if sentences:
        lines += ["", *map(visible, sentences)]
    for section in report.sections:
        lines += _section(section, terminal_width)
    return "\n".join(line.rstrip() for line in lines) + "\n"


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
    fitting_columns, too_wide = fitting(columns(rows, section.columns, unit=section.unit), width)
    yield from _table(fitting_columns, width)
    yield from filter(None, [parts.more(section, say(" (--limit 0 shows all)"))])
    if too_wide:
        names = say(", ").join(visible(column.label) for column in too_wide)
        yield say("Too wide for this terminal: {columns} (--format markdown shows all)", columns=names)
    yield from parts.unknown(section, rows)


def _table(shown: list[ShownColumn], width: int | None) -> Iterator[str]:
    # aligned by hand: a table library takes half a millisecond a row, and tables have tens of thousands
    longest = name_width(shown, width)
    aligned = []
    for column in shown:
        texts = [visible(column.label), *column.cells]
        if not column.numeric:
            uncut = column.name == _NOTE and width is None
            texts = [cut(text, full_width(column) if uncut else longest) for text in texts]
        size = max(map(cell_len, texts))
        if column.numeric:
            aligned.append([" " * (size - cell_len(text)) + text for text in texts])
        else:
            aligned.append([set_cell_size(text, size) for text in texts])
    head, *rows = (GAP.join(row) for row in zip(*aligned, strict=True))
    yield _bold(head, width is not None)
    yield "─" * cell_len(head)
    yield from rows


def _bold(text: str, styled: bool) -> str:
    return f"\x1b[1m{text}\x1b[0m" if styled and text else text
