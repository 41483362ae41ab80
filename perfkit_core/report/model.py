"""The model of a report: plain data for renderers, which compute no numbers.

Renderers format by the declared columns (:mod:`perfkit_core.model.columns`). A missing cell is pandas.NA.
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
    """A part of the timeline: a step, or the recording; ns since the start of the timeline."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Row:
    """A thread or stream: its process or device, and its name."""

    group: str
    name: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """Boxes, sorted by row, depth and start; each array has shape (boxes,). ``start_ns`` counts from the start of the
    timeline. ``name``, ``kind`` and ``row`` index ``names``, ``kinds`` and ``rows``. ``cause``: the box that launched
    this one, -1 if none. ``first``: index of the part shown first."""

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
    """A chart of the section's own table; ``x`` and ``y`` are column names.

    - ``bar`` stacks several ``y``; ``ranking`` has the largest rows by the first ``y``; ``share`` is a bar of all rows.
    - ``icicle``, ``sunburst`` and ``opening`` (bars that open) show trees; each ``y`` is a size to choose.
    - ``heatmap`` has a row per value of ``by`` and a column per value of ``x``, each ``y`` a number to choose, or
      without ``x`` a column per ``y``; the rows ``marked`` are highlighted.
    - ``waterfall`` leads from one total to another: ``y`` are the differences (missing for totals) and reached totals.
    - ``distribution`` has a lane per value of ``x``: ``y`` are single values (named by the column ``step``, marked
      where ``outlying`` is true) and the median of their lane; ``band`` is a range of values to shade.
    - ``intervals`` draws a line per row: each three of ``y`` are low end, middle and high end of one of ``names``
      (English, translated by the renderer); the same column three times is a number without an interval.

    ``note`` explains the chart and is shown only with it.
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

    ``limit``: rows shown to people (None: all); machine formats have all. ``note``: a sentence on the numbers;
    ``empty``: why the table has no rows; ``lines``: sentences below the note; ``code``: text to copy. A section with
    only these has a table without columns. ``unit`` ("ns", "us", "ms", "s"): unit of all times for people (None:
    automatic). ``unknown``: columns without data in the profile, listed in a sentence instead (None: those that are
    empty in the table). ``timeline`` is drawn above the table.

    ``within``: name of the section that contains this part. The part for one row of a table is called after the section
    and the row's ``id`` (``advice-x``), so that the row can link to it. ``folded`` parts are collapsed.
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
    """Return the sections, with ``columns`` for those without declared columns."""
    return tuple(section if section.columns else replace(section, columns=columns) for section in sections)


@dataclass(frozen=True, slots=True)
class Source:
    """One profile of a report: label, path, findings and facts (name → text)."""

    label: str
    path: str
    quality: tuple[Finding, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """Title, sources, and sections in reading order. ``headline``: summary sentences; ``warnings``: their limits;
    ``glance``: excerpts of sections (same names) for the pictures of the head; ``data``: content for machine formats
    only."""

    title: str
    sources: tuple[Source, ...]
    sections: tuple[Section, ...]
    headline: tuple[Text, ...] = ()
    warnings: tuple[Text, ...] = ()
    glance: tuple[Section, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
