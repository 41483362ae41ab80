"""GitHub Markdown for issues and pull requests: the whole report, and a comment of limited length on a change.

Names with special characters are code. The comment has the verdict and the largest causes, then the tables, folded. If
it would be longer than :data:`LONGEST`, names are shortened and rows are left out, then tables."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from perfkit_core.base.language import messages
from perfkit_core.base.language.messages import Text, message, say
from perfkit_core.base.language.shortening import cut
from perfkit_core.output.renderers import parts, table_columns, text_table
from perfkit_core.output.renderers.cells import visible
from perfkit_core.trace.model.report_data import Report, Section

_HARMLESS: Final = re.compile(r"(?!_)(?!.*__)(?!.*(?:www\.|GH-))[\w .,/()%+-]*(?<!_)")
_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>|~#&$@])")
_REFERENCE: Final = re.compile(r"([@#!~$%&])(?=\w)")
"""Signs that begin a reference to a person, an issue or similar. An escape does not prevent it, but a comment does."""


def render(report: Report) -> str:
    blocks = [f"# {prose(report.title)}"]
    blocks += [prose(line) for source in report.sources if (line := parts.source_line(report, source))]
    findings = []
    for finding in parts.findings(report):
        label = f"{prose(finding.label)}: " if finding.label else ""
        findings.append(f"- {label}{prose(finding.text)} ({code(finding.code)})")
    if findings:
        blocks += [f"**{say('Data quality')}**", "\n".join(findings)]
    sentences = (*report.headline, *report.warnings)
    if sentences:
        blocks.append("\n".join(f"- {prose(sentence)}" for sentence in sentences))
    for section in report.sections:
        blocks += [f"## {prose(section.title)}", *section_body(section)]
    return "\n\n".join(blocks) + "\n"


def section_body(section: Section, longest: int | None = None) -> Iterator[str]:
    """Yield the blocks of a section without its heading. Names are shortened to ``longest`` characters."""
    if section.note:
        yield prose(section.note)
    if section.lines:
        yield "\n".join(f"- {prose(line)}" for line in section.lines)
    if section.code:
        yield block(section.code)
    if section.only_text:
        return
    if section.table.empty:
        yield prose(parts.reason(section))
        return
    rows = parts.shown(section)
    shown = table_columns.columns(rows, section.columns, unit=section.unit, indent="· ")
    head = [prose(column.label) for column in shown]
    rule = ["---:" if column.numeric else ":---" for column in shown]
    cells = [
        column.cells if column.numeric else [cell(cut(text, longest) if longest else text) for text in column.cells]
        for column in shown
    ]
    yield "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *zip(*cells, strict=True)))
    for line in (parts.more(section), *parts.unknown(section, rows)):
        if line:
            yield prose(line)


def cell(text: str) -> str:
    """Return ``text`` for a table cell: as code if Markdown would interpret some of its characters, else unchanged."""
    return text if _HARMLESS.fullmatch(text) else code(text)


def code(text: str) -> str:
    """Return a code span with any text. Pipes are escaped, because table cells need this even in code spans."""
    text = visible(text).replace("\\|", "\\ |")  # A backslash before a pipe would cancel the escape of the pipe.
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|")


def block(text: str) -> str:
    """Return a code block. Its fence is longer than any fence in the text."""
    fence = "`" * max(3, max((len(run) + 1 for run in re.findall("`+", text)), default=0))
    return "\n".join((fence, *map(visible, text.removesuffix("\n").split("\n")), fence))


def prose(text: Text) -> str:
    return _REFERENCE.sub(r"\1<!-- -->", _SPECIAL.sub(r"\\\1", visible(text)))


LONGEST: Final = 60_000
"""Maximum length of a comment. GitHub accepts 65,536 characters. The rest is for what others add."""
_TRIED: Final = ((80, 50), (60, 10), (40, 5), (40, 3))
"""Lengths of names, and numbers of rows per table, in the order in which they are tried."""
_SENTENCE: Final = 10
"""A sentence may be this many times as long as a name."""
_MOST_SOURCES: Final = 20
_WIDTH: Final = 88
"""Width of a code block that a comment shows without scrolling."""
_VISIBLE: Final = ("gate", "runs", "serving", "new_step_time")
"""Tables that are not folded."""
_BARS: Final = ("waterfall", "new_waterfall")
"""Tables that are shown as text with bars."""


def comment(report: Report) -> str:
    """Return the report with at most :data:`LONGEST` characters."""
    blocks: list[str] = []
    for names, rows in _TRIED:
        blocks = list(_blocks(report, names, rows))
        if _length(blocks) <= LONGEST:
            return "\n\n".join(blocks) + "\n"
    fitting: list[str] = []
    for block in (*blocks[1:], ""):
        note = say("Parts that are too long for a comment are left out.")
        if _length([blocks[0], *fitting, block, note]) <= LONGEST:
            fitting.append(block or note)
    return "\n\n".join([blocks[0], *fitting]) + "\n"


def _length(blocks: list[str]) -> int:
    return sum(len(block.encode("utf-16-le")) // 2 + 2 for block in blocks)  # as services count, in UTF-16 code units


def _blocks(report: Report, names: int, rows: int) -> Iterator[str]:
    def shortened(text: Text) -> str:
        sentence = messages.render(text)
        longest = names * _SENTENCE
        return prose(sentence if len(sentence) <= longest else f"{sentence[:longest]}…")

    title = message("Performance: {title}", title=report.title)
    yield f"### {shortened(title)}"
    sentences = [shortened(sentence) for sentence in (*report.headline, *report.warnings)]
    findings: dict[bool, list[str]] = {False: [], True: []}
    for finding in parts.findings(report):
        label = f"{shortened(finding.label)}: " if finding.label else ""
        findings[finding.note].append(f"- {label}{shortened(finding.text)}")
    yield from (f"**{sentence}**" for sentence in sentences[:1])
    if lines := [*(f"- {sentence}" for sentence in sentences[1:]), *findings[False][:rows]]:
        yield "\n".join(lines)
    sections = [replace(part, limit=min(rows, part.limit or rows)) for part in report.sections if len(part.table)]
    for section in sections:
        if section.name in _BARS:
            shown, _ = text_table.table_lines(section, parts.shown(section), _WIDTH, text_table.Style())
            yield block("\n".join(shown))
        elif section.name in _VISIBLE:
            yield from section_body(replace(section, note=""), names)
    sources = [f"- {shortened(parts.source_line(report, source))}" for source in report.sources[:_MOST_SOURCES]]
    yield _folded(say("Runs and notes on the data"), ["\n".join([*sources, *findings[True][:rows]])])
    for section in sections:
        if section.name not in (*_BARS, *_VISIBLE):
            yield _folded(section.title, section_body(section, names))


def _folded(title: str, blocks: Iterator[str] | list[str]) -> str:
    # A blank line before the content makes it Markdown. Without one, it would be HTML.
    summary = f"<details><summary>{html.escape(visible(title))}</summary>"
    return "\n\n".join([summary, *blocks, "</details>"])
