"""GitHub Markdown, for issues and pull requests. Names are shown whole, as code where Markdown would interpret them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from perfkit_core.language.messages import Text, say
from perfkit_core.renderers import parts
from perfkit_core.renderers import parts as sources
from perfkit_core.renderers.cells import visible
from perfkit_core.renderers.table_columns import ShownColumn, columns
from perfkit_core.report.model import Report, Section

_HARMLESS: Final = re.compile(r"(?!_)(?!.*__)(?!www\.)[\w .,/()%+-]*(?<!_)")
_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>|~#&$@])")


def render(report: Report) -> str:
    """The report as GitHub Markdown."""
    return "\n\n".join(_blocks(report)) + "\n"


def _blocks(report: Report) -> Iterator[str]:
    yield f"# {prose(report.title)}"
    for source in report.sources:
        line = ": ".join(part for part in (parts.label(report, source), parts.facts(source)) if part)
        if line:
            yield prose(line)
    findings = list(_findings(report))
    if findings:
        yield f"**{say('Data quality')}**"
        yield "\n".join(findings)
    said = (*report.headline, *report.warnings)
    if said:
        yield "\n".join(f"- {prose(sentence)}" for sentence in said)
    for section in report.sections:
        yield from _section(section)


def _findings(report: Report) -> Iterator[str]:
    for finding in sources.findings(report):
        label = f"{prose(finding.label)}: " if finding.label else ""
        yield f"- {label}{prose(finding.text)} ({code(finding.code)})"


def _section(section: Section) -> Iterator[str]:
    yield f"## {prose(section.title)}"
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
    yield _table(columns(rows, section.columns, unit=section.unit, indent="· "))
    for line in (parts.more(section), *parts.unknown(section, rows)):
        if line:
            yield prose(line)


def _table(shown: list[ShownColumn]) -> str:
    head = [prose(column.label) for column in shown]
    rule = ["---:" if column.numeric else ":---" for column in shown]
    cells = [column.cells if column.numeric else [cell(text) for text in column.cells] for column in shown]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *zip(*cells, strict=True)))


def cell(text: str) -> str:
    """A name inside a table: as it is where that is harmless, else as code."""
    return text if _HARMLESS.fullmatch(text) else code(text)


def code(text: str) -> str:
    """A code span that holds ``text`` whatever is in it; pipes are escaped, as tables need it even there."""
    text = visible(text).replace("\\|", "\\ |")  # a backslash before a pipe would take back its escape
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|")


def block(text: str) -> str:
    """Lines of code as they are, in a fence that is longer than any in them."""
    fence = "`" * max(3, max((len(run) + 1 for run in re.findall("`+", text)), default=0))
    return "\n".join((fence, *map(visible, text.splitlines()), fence))


def prose(text: Text) -> str:
    """Text whose special characters mean themselves."""
    return _SPECIAL.sub(r"\\\1", visible(text))
