"""GitHub Markdown for issues and pull requests. Names are not shortened. Names with special characters are code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from perfkit_core.base.language.messages import Text, say
from perfkit_core.output.renderers import parts, table_columns
from perfkit_core.output.renderers.cells import cut, visible
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
