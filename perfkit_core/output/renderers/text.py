"""Plain text with aligned tables, for a terminal, a pipe or a log.

With a width, lines fit: sentences are wrapped, and columns of little worth are left out (see ``text_table``). Without
one, tables have all columns. A report that should fit one screen is also given a height: it then leaves out the
explanations of its tables, and its last table gets as many rows as fit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from rich.cells import cell_len, set_cell_size

from perfkit_core.base.language.messages import say
from perfkit_core.output.renderers import parts
from perfkit_core.output.renderers.cells import visible
from perfkit_core.output.renderers.text_table import Style, table_lines, without_zeros
from perfkit_core.trace.model.report_data import Report, Section

SCREEN: Final = 44
"""Target number of lines of a brief report, for a terminal of 45 lines."""
WIDEST_PIPE: Final = 120
"""Maximum width of text in a pipe or file."""
_FEWEST_ROWS: Final = 3
"""A table that is shortened to fit the screen keeps at least this many rows."""
_FEWEST_CODE: Final = 2
"""Code is shortened to fit the screen if it has more lines."""
_SHOWN_WARNINGS: Final = 3
_INDENT: Final = "    "
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")
_SPACE: Final = "\ue000"
"""Stands for a space where a line must not end."""


def render(report: Report, width: int | None = None, styled: bool = False, height: int | None = None) -> str:
    """Return the report as text. ``styled``: use bold text and colours. ``height``: if it is given,
    the report is brief, and is shortened to this number of lines if possible."""
    style = Style(styled)
    lines = list(_lines(report, width, style, brief=height is not None))
    if height is not None and len(lines) > height:
        shorter = _shortened(report, len(lines) - height)
        lines = list(_lines(shorter, width, style, brief=True))
        if len(lines) > height:  # the line on the rows that were left out is new
            lines = list(_lines(_shortened(shorter, len(lines) - height), width, style, brief=True))
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _shortened(report: Report, excess: int) -> Report:
    """Return the report with fewer rows in its last table with a limit, then in the others, the longest first, and with
    less code in its last sections."""
    sections = list(report.sections)
    rows = {at: min(section.limit, len(section.table)) for at, section in enumerate(sections) if section.limit}
    for at in sorted(rows, key=lambda at: (at != max(rows), -rows[at])):
        fewer = min(max(rows[at] - _FEWEST_ROWS, 0), max(excess, 0))
        sections[at] = replace(sections[at], limit=rows[at] - fewer)
        excess -= fewer
    for at in reversed(range(len(sections))):
        section = sections[at]
        code = section.code_lines
        if excess > 0 and len(code) > _FEWEST_CODE:
            sections[at] = replace(section, code=say("… {count} lines (--limit 0 shows them)", count=len(code)))
            excess -= len(code) - 1
    return replace(report, sections=tuple(sections))


def _lines(report: Report, width: int | None, style: Style, brief: bool) -> Iterator[str]:
    yield from (style.bold(line) for line in wrapped(visible(report.title), width))
    findings = parts.findings(report)
    warnings = [finding for finding in findings if not finding.note]
    most = 1 if report.sources[1:] or warnings[1:] else 2  # lines of a source or warning of a brief report
    for source in report.sources:
        line = parts.source_line(report, source)
        yield from _cut(line, width, most=most) if brief else wrapped(line, width)
    if warnings:
        yield from ("", style.bold(say("Data quality")))
    texts = (wrapped(f"! {_finding(warning)} [{visible(warning.code)}]", width, "  ", "    ") for warning in warnings)
    yield from map(style.yellow, _brief_warnings(warnings, width, most) if brief else chain.from_iterable(texts))
    sentences = (*report.headline, *report.warnings)
    if sentences:
        yield ""
    for at, sentence in enumerate(sentences):
        yield from (style.bold(line) if at == 0 else line for line in wrapped(visible(sentence), width))
    for section in report.sections:
        yield from _section(section, width, style, brief, report.by_view)
    notes = [finding for finding in findings if finding.note]
    if notes and brief:
        codes = say(", ").join(dict.fromkeys(visible(note.code) for note in notes))
        text = say("Notes on the data: {codes} (see perfkit summary SOURCE --view findings)", codes=codes)
        yield from ("", *map(style.dim, _cut(text, width, most=most)))
    elif notes:
        yield from ("", style.bold(say("Notes on the data")))
        for note in notes:
            yield from wrapped(f"- {_finding(note)} [{visible(note.code)}]", width, "  ", "    ")
    if report.next:
        yield ""
        yield from _command(say("next: {command}", command=visible(report.next)), width)


def _cut(
    text: str, width: int | None, first: str = "", indent: str = "", end: str = "", most: int = 2
) -> Iterator[str]:
    """Yield ``text + end`` as :func:`wrapped` does. If this takes more than ``most`` lines, the text is shortened."""
    lines = list(wrapped(text + end, width, first, indent))
    if width is not None and len(lines) > most:
        rest = " ".join(line.strip() for line in lines[most - 1 :]).removesuffix(end)
        begin = indent if most > 1 else first
        lines[most - 1 :] = [set_cell_size(begin + rest, width - cell_len(end) - 1).rstrip() + "…" + end]
    yield from lines


def _brief_warnings(warnings: Sequence[parts.SourcesFinding], width: int | None, most: int) -> Iterator[str]:
    """Yield the first warning of each code, in at most ``most`` lines, and the number of others with this code. Ranks
    often have the same warning with other numbers, which would no longer differ when shortened."""
    by_code: dict[tuple[str, str], list[parts.SourcesFinding]] = {}
    for warning in warnings:
        by_code.setdefault((warning.label, warning.code), []).append(warning)
    groups = list(by_code.values())
    for first, *repeats in groups[:_SHOWN_WARNINGS]:
        code = f" [{visible(first.code)}]"
        if repeats:
            code += say(" and {count} more", count=len(repeats))
        yield from _cut(f"! {_finding(first)}", width, "  ", "    ", code, most)
    hidden = sum(map(len, groups[_SHOWN_WARNINGS:]))
    if hidden:
        yield say("  … {count} more (perfkit summary SOURCE --view findings)", count=hidden)


def _finding(finding: parts.SourcesFinding) -> str:
    label = f"{finding.label}: " if finding.label else ""
    return f"{label}{visible(finding.text)}"


def _section(section: Section, width: int | None, style: Style, brief: bool, by_view: bool) -> Iterator[str]:
    option = f"  --view {section.name}" if by_view and not section.only_text else ""
    yield ""
    if section.title:
        yield style.bold(visible(section.title)) + style.dim(visible(option))
    if section.note and not brief:
        yield from wrapped(visible(section.note), width)
    for line in section.lines:
        yield from wrapped(visible(line), width)
    for line in section.code_lines:
        yield from _code(_INDENT + visible(line), width)
    if section.only_text:
        return
    if section.table.empty:
        yield from wrapped(visible(parts.reason(section)), width)
        return
    if width is not None:
        section = without_zeros(section)
    rows = parts.shown(section)
    lines, left_out = table_lines(section, rows, width, style)
    yield from lines
    yield from filter(None, [style.dim(parts.more(section, say(" (--limit 0 shows all)")))])
    if left_out and not brief:
        names = say(", ").join(visible(column.label) for column in left_out)
        text = say("No room for: {columns} (--format markdown shows all columns)", columns=names)
        yield from map(style.dim, wrapped(text, width))
    for line in () if brief else parts.unknown(section, rows):
        yield from map(style.dim, wrapped(line, width))


def _code(line: str, width: int | None) -> Iterator[str]:
    """Yield a line of code. If it is too wide, its comment is put above it."""
    statement, mark, comment = line.partition("  # ")
    if width is None or cell_len(line) <= width or not mark or not statement.strip():
        yield line
        return
    indent = " " * (len(statement) - len(statement.lstrip()))
    yield from wrapped(f"# {comment}", width, indent, f"{indent}# ")
    yield statement


def _command(text: str, width: int | None) -> Iterator[str]:
    """Yield the lines of a command. A shell accepts them as one command when they are copied: no line ends inside
    quotes."""
    quoted = _QUOTED.sub(lambda match: match[0].replace(" ", _SPACE), text)
    lines = wrapped(quoted, None if width is None else width - 2, indent=_INDENT)
    *first, last = (line.replace(_SPACE, " ") for line in lines)
    yield from (f"{line} \\" for line in first)
    yield last


def wrapped(text: str, width: int | None, first: str = "", indent: str = "") -> Iterator[str]:
    """Yield the text in lines of at most ``width`` terminal cells. ``first`` and ``indent`` are put before the first
    line and before the other lines. Words such as long paths are not broken, so that they can be copied."""
    line = first
    for word in text.split(" "):
        joined = f"{line} {word}" if line.strip() else line + word
        if width is None or cell_len(joined) <= width:
            line = joined
            continue
        if line.strip():
            yield line
            line = indent + word
        else:
            line = joined
        while cell_len(line) > max(width, len(line)):  # wide Chinese characters
            part = set_cell_size(line, width).rstrip()
            yield part
            line = indent + line[len(part) :]
    yield line
