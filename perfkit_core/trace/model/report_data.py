"""The model of a report: plain data that renderers format without computing numbers.

The declared columns (:mod:`perfkit_core.trace.model.columns`) determine the format. Missing cells are pandas.NA.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import pandas as pd

from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.base.language.messages import Text
from perfkit_core.trace.model.columns import Column, column
from perfkit_core.trace.model.meta import Finding


class Part(NamedTuple):
    """A step of the timeline, or the entire recording. Times are ns since the start of the timeline."""

    name: str
    start_ns: int
    end_ns: int
    step: str = ""  # number of the step


Marks = Mapping[str, Mapping[str, IntArray]]
"""Kind of thing (:attr:`perfkit_core.trace.model.columns.Column.thing`) → name → rows of a trace, or boxes of a
timeline."""


class Row(NamedTuple):
    """A thread or stream of the timeline. ``group`` is the name of its process or device."""

    group: str
    name: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """The events of a timeline, drawn as boxes. Each array has one item per box, sorted by row, depth and start."""

    parts: tuple[Part, ...]
    rows: tuple[Row, ...]
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    start_ns: IntArray  # since the start of the timeline
    dur_ns: IntArray
    name: IntArray  # index into ``names``
    kind: IntArray  # index into ``kinds``
    row: IntArray  # index into ``rows``
    depth: IntArray
    cause: IntArray  # index of the box that launched this box, -1 if none
    first: int = 0  # index in ``parts`` of the step that the page shows first
    marks: Marks = field(default_factory=dict)  # the boxes of each thing, as indices

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of the table of a section. ``x`` and ``y`` are names of columns.

    - ``bar``: stacked bars of the columns ``y``
    - ``line``: a line per column ``y``
    - ``ranking``: a bar for each of the rows with the largest ``y[0]``
    - ``share``: a single bar with a part per row
    - ``icicle``, ``sunburst``, ``opening`` (bars that can be expanded): a tree. If ``y`` has several
      columns, the user selects the column that contains the sizes.
    - ``heatmap``: a row per value of ``by``. If ``x`` is empty, there is a column for each name in ``y``. Otherwise
      there is a column for each value of ``x``, and the user selects the name in ``y`` whose values are shown.
    - ``waterfall``: bars from one total to another. ``y[0]``: difference (missing for totals). ``y[1]``: total so far.
    - ``distribution``: a dot per row, in one lane per value of ``x``. ``y[0]`` is the value, and ``y[1]`` is the median
      of the lane. The table needs the columns ``step`` (the name of a dot) and ``outlying`` (whether to mark the dot).
    - ``intervals``: a line per row with one interval per name in ``names``. Each interval takes three columns of ``y``:
      low end, middle and high end. For a number without an interval, the three columns are the same.
    - ``roofline``: a dot per row and a roof per value of ``by``. ``x`` is the arithmetic intensity. ``y`` names the
      achieved rate, the time (size of the dot), and the two peak rates, of FLOPs and of the memory.
    """

    kind: Literal[
        "bar", "line", "ranking", "share", "icicle", "sunburst", "opening", "heatmap", "waterfall", "distribution",
        "intervals", "roofline",
    ]  # fmt: skip
    x: str
    y: tuple[str, ...]
    band: tuple[int, int] | None = None  # range of values that a distribution chart shades
    names: tuple[str, ...] = ()  # names of the intervals of a row; the renderer translates them
    by: str = ""
    marked: tuple[object, ...] = ()  # rows that a heat map highlights
    note: str = ""  # explains the chart; shown only together with the chart


@dataclass(frozen=True, slots=True)
class Section:
    """One table with its heading. A table with a column ``depth`` is a tree, in which children follow their parent.

    If a section has only texts, its table has no columns. A section about one row of a table is named after the table
    and the row's ``id``. For example, the row ``r1`` of the section ``advice`` links to the section ``advice-r1``.
    """

    name: str
    title: str
    table: pd.DataFrame
    note: str = ""  # explains the numbers
    empty: Text = ""  # reason why the table has no rows
    limit: int | None = None  # maximum number of rows in text, Markdown and HTML; None means no limit
    chart: Chart | None = None
    unit: str | None = None  # unit of all times in text, Markdown and HTML, such as "ms"; None chooses suitable units
    unknown: tuple[str, ...] | None = None  # columns without data in the profile; None means all empty columns
    lines: tuple[Text, ...] = ()  # sentences below the note
    code: str = ""  # text that the reader can copy
    timeline: Timeline | None = None  # drawn above the table
    within: str = ""  # name of the section that contains this section
    folded: bool = False  # whether the section starts collapsed
    chosen: bool = False  # whether the user chose the columns, so that text shows them all, in this order
    columns: tuple[Column, ...] = ()
    whole: pd.DataFrame | None = None  # the complete table, if ``table`` is a selection of it for people

    @property
    def code_lines(self) -> list[str]:
        """The lines of :attr:`code`. Only a line feed ends a line: a name may contain other separators of lines."""
        return self.code.removesuffix("\n").split("\n") if self.code else []

    def column(self, name: str) -> Column:
        return column(self.columns, name)

    @property
    def only_text(self) -> bool:
        return not len(self.table.columns)


def declared(sections: Iterable[Section], columns: tuple[Column, ...]) -> tuple[Section, ...]:
    """Return the sections. Sections without declared columns get ``columns``."""
    return tuple(section if section.columns else replace(section, columns=columns) for section in sections)


Links = Mapping[tuple[str, str], Sequence[tuple[str, str]]]
"""Two kinds of things → pairs of their names, such as an operator and a kernel that it launched. The pairs with most
time come first."""


class Fact(NamedTuple):
    """A fact about a profile. ``value`` is its text next to its name, such as ``0–7`` next to "Ranks". ``text`` is its
    text without its name, such as ``ranks 0–7``. If it is "", the value is clear without the name."""

    value: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """One profile of a report. ``quality`` are its data-quality warnings. ``facts`` maps names to facts."""

    label: str
    path: str
    quality: tuple[Finding, ...] = ()
    facts: Mapping[str, Fact] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """A report. The sections are in reading order."""

    title: str
    sources: tuple[Source, ...]
    sections: tuple[Section, ...]
    headline: tuple[Text, ...] = ()  # summary sentences
    warnings: tuple[Text, ...] = ()  # sentences on what limits the conclusions
    glance: tuple[Section, ...] = ()  # short versions of ``sections`` for the head of a page, with the same names
    data: Mapping[str, Any] = field(default_factory=dict)  # content for machine formats only
    links: Links = field(default_factory=dict)  # things of a page that belong together
    by_view: bool = False  # whether --view NAME of the command shows the section NAME alone
    next: str = ""  # the suggested next command, for text
