"""Plain text with aligned tables, for a terminal, a pipe or a log.

Long names are shortened (see ``cells.cut``), numbers never. Columns that do not fit the terminal are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size

from perfkit_core.language.messages import say
from perfkit_core.model.report_data import Report, Section
from perfkit_core.renderers import parts
from perfkit_core.renderers.cells import cut, visible
from perfkit_core.renderers.table_columns import ShownColumn, columns

GAP: Final = "   "
_MAX_TEXT_WIDTH: Final = 80
_MIN_NAME_WIDTH: Final = 24
_SHORT_TEXT_WIDTH: Final = 8
"""Maximum width of a short text column, such as a device. If space is short, wider text columns are left out first."""


def fitting(shown: Sequence[ShownColumn], width: int | None) -> tuple[list[ShownColumn], list[ShownColumn]]:
    """Return two lists: the columns that fit the terminal, and the columns that are left out.

    At least two columns are kept. Long text columns are left out first, except the first long text column.
    """
    if width is None:
        return list(shown), []
    texts = [column for column in shown if not column.numeric]
    long = [column for column in texts if max(map(cell_len, column.cells), default=0) > _SHORT_TEXT_WIDTH]
    later = long[1:]
    wanted = [*(column for column in shown if column not in later), *later]
    needed = -len(GAP)
    names: set[str] = set()
    for column in wanted:
        size = full_width(column)
        needed += len(GAP) + (size if column.numeric else min(size, _MIN_NAME_WIDTH))
        if needed > width and len(names) > 1:
            break
        names.add(column.name)
    return [c for c in shown if c.name in names], [c for c in shown if c.name not in names]


def name_width(shown: Sequence[ShownColumn], width: int | None) -> int:
    """Return the maximum width of a text column. The columns of numbers take their width first."""
    if width is None:
        return _MAX_TEXT_WIDTH
    names = sorted(full_width(column) for column in shown if not column.numeric)
    free = width - len(GAP) * (len(shown) - 1) - sum(full_width(column) for column in shown if column.numeric)
    for index, size in enumerate(names):  # Short columns get their full width. Long columns share the rest.
        share = free // (len(names) - index)
        if size > share:
            return max(_MIN_NAME_WIDTH, share)
        free -= size
    return max(names, default=_MAX_TEXT_WIDTH)


def full_width(column: ShownColumn) -> int:
    """Return the width of a column with its heading, in terminal cells, if nothing is shortened."""
    return max(map(cell_len, (visible(column.label), *column.cells)))


_SENTENCES: Final = "note"


def render(report: Report, terminal_width: int | None = None) -> str:
    """Return the report as text. With a ``terminal_width``, the tables fit the terminal and headings are bold."""
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
        yield say("No room in this terminal: {columns} (--format markdown shows all columns)", columns=names)
    yield from parts.unknown(section, rows)


def _table(shown: list[ShownColumn], width: int | None) -> Iterator[str]:
    # A table library would take half a millisecond per row, and tables have tens of thousands of rows.
    longest = name_width(shown, width)
    aligned = []
    for column in shown:
        texts = [visible(column.label), *column.cells]
        if not column.numeric:
            uncut = column.name == _SENTENCES and width is None
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
