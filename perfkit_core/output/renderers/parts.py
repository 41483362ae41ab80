"""Parts that text, Markdown and HTML share: left-out rows, columns without values, facts and findings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import pandas as pd

from perfkit_core.base.language.messages import Text, mark, render, say
from perfkit_core.output.renderers import cells, table_columns
from perfkit_core.trace.model.columns import Column
from perfkit_core.trace.model.report_data import Fact, Report, Section, Source

UNSAID: Final = ("rank", "error")
"""Columns that are usually empty. Lists such as "No values for: …" and "No values in these rows: …" omit them."""


def recorded_table(section: Section) -> pd.DataFrame:
    """Return the table of a section without the columns for which the profile has no data."""
    return section.table.drop(columns=list(section.unknown or ()), errors="ignore")


def shown(section: Section) -> pd.DataFrame:
    """Return the rows to show: the first ``section.limit`` rows, without the columns that have no data."""
    return recorded_table(section) if section.limit is None else recorded_table(section).head(section.limit)


def more(section: Section, hint: str = "") -> str:
    """Return ``… 5 more rows`` and ``hint`` if ``shown`` leaves out 5 rows, and "" if it leaves out none."""
    left = len(section.table) - len(shown(section))
    if not left:
        return ""
    return (say("… 1 more row") if left == 1 else say("… {count} more rows", count=left)) + hint


def unknown(section: Section, rows: pd.DataFrame) -> Iterator[str]:
    """Yield up to two sentences: which columns were not recorded, and which other columns are empty in ``rows``."""
    names = [str(name) for name in section.table.columns] if len(rows) else []
    empty = [name for name in names if name not in rows.columns or rows[name].isna().all()]
    filled = [section.column(name) for name in names if name not in empty]
    unrecorded: list[Column] = []
    absent: list[Column] = []
    for name in (name for name in empty if name not in UNSAID):
        # If the section does not list the unrecorded columns, all columns without any value count as unrecorded.
        never = section.table[name].isna().all() if section.unknown is None else name in section.unknown
        (unrecorded if never else absent).append(section.column(name))
    if unrecorded:
        yield say("No values for: {columns}", columns=say(", ").join(table_columns.without_units(unrecorded, filled)))
    if absent:
        names_of_absent = say(", ").join(table_columns.without_units(absent, filled))
        yield say("No values in these rows: {columns}", columns=names_of_absent)


def reason(section: Section) -> str:
    """Return the reason why a section has no rows, as a sentence with a capital letter and a full stop."""
    text = render(section.empty) or say("nothing to show")
    begun = text[:1].upper() + text[1:]
    return begun if text.endswith((".", "。")) else say("{sentence}.", sentence=begun)


def source_line(report: Report, source: Source) -> str:
    """Return the facts of a source in one line, after its label if the report has several sources."""
    label = "" if len(report.sources) == 1 else cells.visible(source.label)
    facts = " · ".join(cells.visible(fact.text or fact.value) for fact in source.facts.values())
    return ": ".join(part for part in (label, facts) if part)


BESIDE: Final = 3
"""Maximum number of sources that are shown as columns. More sources are shown as rows."""
_SOURCE: Final = mark("Source")


class SourcesFact(NamedTuple):
    """A fact with the value of each source. ``same`` is set if all values are equal."""

    name: str
    values: tuple[str, ...]
    same: bool


def source_facts(report: Report) -> list[SourcesFact]:
    """Return the facts that at least one source has, and the path of each source as the last fact."""
    names = dict.fromkeys(name for source in report.sources for name in source.facts)
    missing = Fact(cells.MISSING)
    rows = [(name, tuple(source.facts.get(name, missing).value for source in report.sources)) for name in names]
    rows.append((_SOURCE, tuple(source.path for source in report.sources)))
    return [SourcesFact(name, values, same=len(set(values)) == 1) for name, values in rows]


class SourcesFinding(NamedTuple):
    """A finding with the labels of the sources that it concerns. The label is "" if the report has one source."""

    label: str
    text: Text
    code: str
    note: bool


def findings(report: Report) -> list[SourcesFinding]:
    owners: dict[tuple[Text, str, bool], list[str]] = {}
    for source in report.sources:
        for finding in dict.fromkeys((entry.text, entry.code, entry.note) for entry in source.quality):
            owners.setdefault(finding, []).append(cells.visible(source.label))
    result = []
    for finding, labels in owners.items():
        label = ", ".join(labels)
        if len(labels) == len(report.sources):
            label = "" if len(labels) == 1 else say("all")
        result.append(SourcesFinding(label, *finding))
    return result
