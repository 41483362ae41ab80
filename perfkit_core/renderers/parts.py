"""What every format for people says in the same words: rows left out, columns unknown, facts in a line.

What is told of the sources of a report: their facts beside each other, and what their findings have in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from perfkit_core.language.messages import Text, mark, render, say
from perfkit_core.renderers.cells import MISSING, visible
from perfkit_core.renderers.table_columns import without_units
from perfkit_core.report.model import Report, Section, Source

_UNSAID: Final = ("rank", "error")
"""Columns that are empty in most tables, as they should be: their absence tells nothing."""


def known(section: Section) -> pd.DataFrame:
    """What people are shown of the table: all rows, and the columns of which the profile holds something."""
    return section.table.drop(columns=list(section.unknown or ()), errors="ignore")


def shown(section: Section) -> pd.DataFrame:
    """The rows that people are shown first."""
    return known(section) if section.limit is None else known(section).head(section.limit)


def more(section: Section, hint: str = "") -> str:
    """How many rows ``shown`` left out, "" when none; ``hint`` says how to see them."""
    left = len(section.table) - len(shown(section))
    if not left:
        return ""
    return (say("… 1 more row") if left == 1 else say("… {count} more rows", count=left)) + hint


def unknown(section: Section, rows: pd.DataFrame) -> Iterator[str]:
    """Sentences on the columns left out of ``rows``: those the profile does not hold, and those empty in these rows."""
    names = [str(name) for name in section.table.columns] if len(rows) else []
    empty = [name for name in names if name not in rows.columns or rows[name].isna().all()]
    others = [name for name in names if name not in empty]
    said = [name for name in empty if name not in _UNSAID]
    never = [name for name in said if _never(section, name)]
    here = [name for name in said if name not in never]
    if never:
        yield say("Not recorded: {columns}", columns=_headings(section, never, others))
    if here:
        yield say("None in these rows: {columns}", columns=_headings(section, here, others))


def _headings(section: Section, names: Sequence[str], others: Sequence[str]) -> str:
    return say(", ").join(without_units(list(map(section.column, names)), map(section.column, others)))


def _never(section: Section, name: str) -> bool:
    """Whether the profile holds nothing of a column; sections that were not cut tell it themselves."""
    return bool(section.table[name].isna().all()) if section.unknown is None else name in section.unknown


def reason(section: Section) -> str:
    """Why a section has no rows."""
    text = render(section.empty) or say("nothing to show")
    begun = text[:1].upper() + text[1:]
    return begun if text.endswith((".", "。")) else say("{sentence}.", sentence=begun)


def facts(source: Source) -> str:
    """Head facts in one line: a fact that its name does not need to explain comes without it."""
    return " · ".join(visible(value) for value in source.facts.values())


def label(report: Report, source: Source) -> str:
    """What a source is called where a report has several of them, "" where it is the only one."""
    return "" if len(report.sources) == 1 else visible(source.label)


BESIDE: Final = 3
"""So many sources have a column each; more have a row each."""
_SOURCE: Final = mark("Source")


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact of all sources. ``same``: it is no difference between them."""

    name: str
    values: tuple[str, ...]
    same: bool


def source_facts(report: Report) -> list[Fact]:
    """The facts that some source has, in their order, and where each source was read from."""
    names = dict.fromkeys(name for source in report.sources for name in source.facts)
    told = [_fact(name, [source.facts.get(name, MISSING) for source in report.sources]) for name in names]
    return [*told, _fact(_SOURCE, [source.path for source in report.sources])]


@dataclass(frozen=True, slots=True)
class Told:
    """A finding, and the labels of the sources that it is of: "" where there is only one source."""

    label: str
    text: Text
    code: str


def findings(report: Report) -> list[Told]:
    """Each finding once."""
    owners: dict[tuple[Text, str], list[str]] = {}
    for source in report.sources:
        for finding in dict.fromkeys((one.text, one.code) for one in source.quality):
            owners.setdefault(finding, []).append(visible(source.label))
    return [Told(_owned(labels, len(report.sources)), *finding) for finding, labels in owners.items()]


def _fact(name: str, values: Sequence[str]) -> Fact:
    return Fact(name, tuple(values), len(set(values)) == 1)


def _owned(labels: Sequence[str], sources: int) -> str:
    if sources == 1:
        return ""
    return say("all") if len(labels) == sources else ", ".join(labels)
