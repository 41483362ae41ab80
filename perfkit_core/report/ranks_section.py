"""The ranks of a job side by side: a heat map of their steps, and who keeps the others waiting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

import pandas as pd

from perfkit_core.language import Text
from perfkit_core.report import ranks_stragglers, ranks_stretches
from perfkit_core.report.model import Chart, Section

VIEW: Final = "ranks"
_PARTS: Final = 6
"""The columns before the parts of a step."""


def with_picture(section: Section, tables: Mapping[str, pd.DataFrame]) -> Section:
    """The section of the view with its picture and sentences: ranks by steps, or by the parts of the only step.

    Where there are too many cells, they are averages of several steps.
    """
    if section.table.empty:
        return section
    found = ranks_stragglers.found(section.table, tables.get("stragglers", pd.DataFrame()))
    parts = tuple(map(str, section.table.columns[_PARTS:]))
    if section.table["step"].nunique() == 1:
        chart = Chart("heatmap", "", parts, by="rank", marked=found.ranks)
        return replace(section, lines=found.lines, chart=chart)
    table, note = ranks_stretches.fitting(section.table)
    numbers = ("own_time_ns", "dur_ns", "own_time_over_median_ns", "dur_over_median_ns", *parts)
    chart = Chart("heatmap", "step", numbers, by="rank", marked=found.ranks)
    return replace(section, table=table, note=f"{section.note} {note}".strip(), lines=found.lines, chart=chart)


def in_short(sections: Iterable[Section]) -> tuple[Text, ...]:
    """What a hurried reader needs to know of the ranks: the worst of those that are pointed at."""
    return tuple(one.lines[0] for one in sections if one.name == VIEW and one.chart and one.chart.marked)
