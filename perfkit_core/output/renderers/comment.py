"""A report as a comment on a change, in Markdown: the verdict and the largest causes, then the tables, folded.

A comment is never longer than :data:`LONGEST`. If it would be, names are shortened and rows are left out, then tables.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from perfkit_core.base.language.messages import Text, message, render, say
from perfkit_core.output.renderers import markdown, parts, text_table
from perfkit_core.output.renderers.cells import visible
from perfkit_core.trace.model.report_data import Report

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
        sentence = render(text)
        longest = names * _SENTENCE
        return markdown.prose(sentence if len(sentence) <= longest else f"{sentence[:longest]}…")

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
            yield markdown.block("\n".join(shown))
        elif section.name in _VISIBLE:
            yield from markdown.section_body(replace(section, note=""), names)
    sources = [f"- {shortened(parts.source_line(report, source))}" for source in report.sources[:_MOST_SOURCES]]
    yield _folded(say("Runs and notes on the data"), ["\n".join([*sources, *findings[True][:rows]])])
    for section in sections:
        if section.name not in (*_BARS, *_VISIBLE):
            yield _folded(section.title, markdown.section_body(section, names))


def _folded(title: str, blocks: Iterator[str] | list[str]) -> str:
    # A blank line before the content makes it Markdown. Without one, it would be HTML.
    summary = f"<details><summary>{html.escape(visible(title))}</summary>"
    return "\n\n".join([summary, *blocks, "</details>"])
