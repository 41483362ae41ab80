"""The model of a report: plain data that renderers format without computing numbers.

The declared columns (:mod:`perfkit_core.model.columns`) determine the format. Missing cells are pandas.NA.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import pandas as pd

from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.language.messages import Text
from perfkit_core.model.columns import Column, column
from perfkit_core.model.meta import Finding


class Part(NamedTuple):
    """A step of the timeline, or the entire recording. Times are ns since the start of the timeline."""

    name: str
    start_ns: int
    end_ns: int


class Row(NamedTuple):
    """A thread or stream of the timeline. ``group`` is the name of its process or device."""

    group: str
    name: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """The events of a timeline, drawn as boxes. Each array has shape (boxes,). Boxes are sorted by row, depth and
    start.

    ``start_ns`` is in ns since the start of the timeline. ``name``, ``kind`` and ``row`` are indices into ``names``,
    ``kinds`` and ``rows``. ``cause`` is the index of the box that launched a box, -1 if none. ``first`` is the index of
    the part that the page shows first.
    """

    parts: tuple[Part, ...]
    rows: tuple[Row, ...]
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    start_ns: IntArray
    dur_ns: IntArray
    name: IntArray
    kind: IntArray
    row: IntArray
    depth: IntArray
    cause: IntArray
    first: int = 0

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of the table of a section. ``x`` and ``y`` are names of columns.

    - ``bar`` stacks the columns ``y``. ``line`` draws a line per column ``y``. ``ranking`` shows the rows with the
      largest values of the first ``y``. ``share`` is a single bar with a part per row.
    - ``icicle``, ``sunburst`` and ``opening`` (bars that can be expanded) show trees. The user chooses the column ``y``
      of the sizes.
    - ``heatmap`` has a row per value of ``by`` and a column per value of ``x``. The user chooses the column ``y``. If
      ``x`` is empty, the heat map has a column per ``y``. The rows ``marked`` are highlighted.
    - ``waterfall`` leads from one total to another. The columns ``y`` are the differences (missing for totals) and the
      totals so far.
    - ``distribution`` has a lane per value of ``x``. The columns ``y`` are the values and the median of the lane. The
      column ``step`` names a value, and the column ``outlying`` marks values. ``band`` is a range of values to shade.
    - ``intervals`` draws a line per row. ``y`` has three columns for each of ``names``: low end, middle and high end.
      For a number without an interval, the three columns are the same. The renderer translates ``names``.

    ``note`` explains the chart and is shown only together with the chart.
    """

    kind: Literal[
        "bar", "line", "ranking", "share", "icicle", "sunburst", "opening", "heatmap", "waterfall", "distribution",
        "intervals",
    ]  # fmt: skip
    x: str
    y: tuple[str, ...]
    band: tuple[int, int] | None = None
    names: tuple[str, ...] = ()
    by: str = ""
    marked: tuple[object, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """One table with its heading. A table with a column ``depth`` is a tree in preorder.

    ``note`` explains the numbers. ``lines`` are sentences below the note. ``empty`` is the reason why the table has no
    rows. ``code`` is text to copy. If a section has only texts, its table has no columns. ``limit`` is the maximum
    number of rows in formats for people (None means no limit). ``unit`` ("ns", "us", "ms" or "s") is the unit of all
    times in formats for people (None chooses suitable units). ``unknown`` are the columns without data in the profile,
    which are listed in a sentence. None means the columns that are empty in the table. ``timeline`` is drawn above the
    table.

    ``within`` is the name of the section that contains this section. If a section is about one row of a table, its name
    is the name of the table's section, a hyphen and the row's ``id``, so that the row can link to it. A ``folded``
    section starts collapsed.
    """

    name: str
    title: str
    table: pd.DataFrame
    note: str = ""
    empty: Text = ""
    limit: int | None = None
    chart: Chart | None = None
    unit: str | None = None
    unknown: tuple[str, ...] | None = None
    lines: tuple[Text, ...] = ()
    code: str = ""
    timeline: Timeline | None = None
    within: str = ""
    folded: bool = False
    columns: tuple[Column, ...] = ()

    def column(self, name: str) -> Column:
        return column(self.columns, name)

    @property
    def only_text(self) -> bool:
        return not len(self.table.columns)


def declared(sections: Iterable[Section], columns: tuple[Column, ...]) -> tuple[Section, ...]:
    """Return the sections. Sections without declared columns get ``columns``."""
    return tuple(section if section.columns else replace(section, columns=columns) for section in sections)


@dataclass(frozen=True, slots=True)
class Source:
    """One profile of a report. ``quality`` are its data-quality warnings. ``facts`` maps names of facts to texts."""

    label: str
    path: str
    quality: tuple[Finding, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """A report. The sections are in reading order.

    ``headline`` are summary sentences. ``warnings`` state what limits the conclusions. ``glance`` are excerpts of
    sections, with the same names, for the pictures at the head of a page. ``data`` is content for machine formats only.
    """

    title: str
    sources: tuple[Source, ...]
    sections: tuple[Section, ...]
    headline: tuple[Text, ...] = ()
    warnings: tuple[Text, ...] = ()
    glance: tuple[Section, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
