"""What every format for people says in the same words: rows left out, columns unknown, facts in a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pandas as pd

from perfkit_core.language import say
from perfkit_core.renderers.cells import visible
from perfkit_core.renderers.headings import without_units
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
    text = section.empty or say("nothing to show")
    begun = text[:1].upper() + text[1:]
    return begun if text.endswith((".", "。")) else say("{sentence}.", sentence=begun)


def facts(source: Source) -> str:
    """Head facts in one line: a fact that its name does not need to explain comes without it."""
    return " · ".join(visible(value) for value in source.facts.values())


def label(report: Report, source: Source) -> str:
    """What a source is called where a report has several of them, "" where it is the only one."""
    return "" if len(report.sources) == 1 else visible(source.label)
