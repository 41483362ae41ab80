"""What does a hurried reader see first? Few rows of few sections of a report, to be drawn without a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import pandas as pd

from perfkit_core.report.model import Section

FIRST: Final = 3
"""Advice that is shown; what all of it saves together is one more row."""


def glance(sections: Sequence[Section]) -> Iterator[Section]:
    """What the steps are spent on, and the advice that saves most. Each is a part of the section of its name."""
    found = {section.name: section for section in sections}
    if "partition" in found and not found["partition"].table.empty:
        yield _bare(found["partition"], found["partition"].table)
    if "advice" in found:
        yield _bare(found["advice"], _first(found["advice"].table))


def _bare(section: Section, rows: pd.DataFrame) -> Section:
    return replace(section, table=rows.reset_index(drop=True), note="", lines=())


def _first(table: pd.DataFrame) -> pd.DataFrame:
    """The advice with the largest savings, which comes first, and the row of what can be combined, which has no id."""
    if table.empty:
        return table
    known = table[table["saving_ns"].fillna(0) > 0]
    advice = known["id"].notna()
    return known[(advice & (advice.cumsum() <= FIRST)) | ~advice]
