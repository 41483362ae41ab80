"""What a renderer gets: a Report of Sections. Plain data, so that no renderer ever computes a number.

Renderers format by what the columns declare (:mod:`perfkit_core.model.columns`). A missing cell is pandas.NA.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pandas as pd

from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.language.messages import Text
from perfkit_core.model.columns import Column, column
from perfkit_core.model.meta import Finding


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of time to look at: a step, or the recording; ns since the beginning of the timeline."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Row:
    """A thread or a stream: the process or device that it belongs to, and its own name."""

    group: str
    name: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """Boxes, sorted by row, depth and start; each array of shape (boxes,).

    ``start_ns`` counts from the beginning of the timeline. ``name``, ``kind`` and ``row`` are positions in ``names``,
    ``kinds`` and ``rows``. ``cause`` is the box that launched this one, -1 where none of them did. ``first`` is the
    position of the part to show first.
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
    """A picture of the section's own table: ``x`` and ``y`` are column names.

    - ``bar`` stacks several ``y``; ``ranking`` are the largest rows by the first ``y``; ``share`` is one bar made of
      the rows.
    - ``icicle``, ``sunburst`` and ``opening`` (bars that open) are of trees (tables with a column ``depth``), each
      ``y`` a size to choose.
    - ``heatmap`` has a row for each value of the column ``by`` and a column for each of ``x``, each ``y`` a number to
      choose, or without ``x`` a column for each of ``y``; the rows ``marked`` are highlighted.
    - ``waterfall`` goes from one total to another: ``y`` are the differences (missing for totals) and the totals
      reached by them.
    - ``distribution`` has a lane for each value of ``x``: ``y`` are single values (each named by the column ``step``,
      and marked where ``outlying`` is true) and the median of their lane; ``band`` is a range of values to shade, which
      is also in a table of the report.
    - ``intervals`` draws a line a row: each three of ``y`` are the low end, the middle and the high end of one of
      ``names`` (in English, translated where it is shown), the same column three times a number without an interval.

    ``note`` explains the picture, and is shown only with it.
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

    ``limit`` is how many rows people are shown first (None: all); machines get all. ``note`` explains the numbers in a
    sentence, ``empty`` says why the table has no rows. ``unit`` ("ns", "us", "ms", "s") is that of all times for people
    (None: one that suits). ``unknown`` names the columns of which the profile holds nothing (None: those that are empty
    in the table): people see their names in a sentence instead. ``lines`` are sentences below the note, ``code`` is to
    be copied as it is; a section of these alone has a table without columns. ``timeline`` is drawn above the table on a
    page. ``columns`` says what the columns mean.

    ``within`` names the section that this one is a part of and is shown in. The part on one row of a table is named
    after its section and the row's ``id`` (``advice`` and ``x``: ``advice-x``), so that the row can lead to it.
    ``folded`` parts are collapsed.
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
        """Return the declaration of a column of the table."""
        return column(self.columns, name)

    @property
    def only_text(self) -> bool:
        """Whether there is no table to show."""
        return not len(self.table.columns)


def declared(sections: Iterable[Section], columns: tuple[Column, ...]) -> tuple[Section, ...]:
    """Return the sections, those without declared columns with ``columns``."""
    return tuple(section if section.columns else replace(section, columns=columns) for section in sections)


@dataclass(frozen=True, slots=True)
class Source:
    """One profile behind a report: where it was read from, its findings and head facts (name → text)."""

    label: str
    path: str
    quality: tuple[Finding, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """Title, one source or several, and sections in reading order.

    ``headline`` holds a few sentences that sum it up, ``warnings`` what limits them, ``glance`` the few rows of
    sections (of the same names) for the pictures of the head; ``data`` what only machine formats carry.
    """

    title: str
    sources: tuple[Source, ...]
    sections: tuple[Section, ...]
    headline: tuple[Text, ...] = ()
    warnings: tuple[Text, ...] = ()
    glance: tuple[Section, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
