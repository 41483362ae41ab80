"""What the page's templates get of each section: formatted columns, rows of cells, pictures, and its parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from perfkit_core.renderers import parts
from perfkit_core.renderers.html import bars, charts, packing
from perfkit_core.renderers.html.bars import Spans, spans
from perfkit_core.renderers.table_columns import ShownColumn, columns
from perfkit_core.report.model import Section

LONGEST: Final = 60
"""Longer text is cut until it is clicked."""
SHORTEST: Final = 24
"""Longer text is broken into lines where a table has no room for it."""
_FILTERS: Final = frozenset({"kind", "phase", "device", "place", "rank", "family", "found", "severity", "copy_kind"})
_FEW: Final = 8
_FEW_OF_A_PART: Final = 20
_MOST_CHOICES: Final = 30
_NARROW: Final = 3
"""Columns of a table that fit beside another part."""


@dataclass(frozen=True, slots=True)
class Block:
    """A section as the template needs it: formatted columns, rows of cells, how many rows come first."""

    section: Section
    id: str
    columns: list[ShownColumn]
    rows: list[tuple[str, ...]]
    first: int
    unknown: list[str]
    reason: str
    figure: dict[str, Any] | None
    timeline: dict[str, Any] | None
    tree: bool
    filters: frozenset[str]
    spans: Spans | None
    parts: list[Block]

    @property
    def rich(self) -> bool:
        """Whether the table is worth searching and sorting."""
        return len(self.rows) >= (_FEW_OF_A_PART if self.section.within else _FEW)

    @property
    def wide(self) -> bool:
        """Whether a part needs all the room there is."""
        code = max(map(len, self.section.code.splitlines()), default=0)
        return len(self.columns) > _NARROW or self.spans is not None or code > LONGEST


@dataclass(frozen=True, slots=True)
class Glance:
    """A picture of the head: the parts of a whole, or intervals."""

    section: Section
    shares: tuple[bars.Part, ...]
    spans: Spans | None
    reason: str


def of_section(index: int, section: Section) -> Block:
    """A section by its place in the report."""
    table = parts.known(section)
    shown = columns(table, section.columns, section.limit, section.unit, "· ")
    return Block(
        section=section,
        id=f"section-{index}",
        columns=shown,
        rows=list(zip(*(column.cells for column in shown), strict=True)),
        first=len(parts.shown(section)),
        unknown=list(parts.unknown(section, table)),
        reason=parts.reason(section),
        figure=charts.figure(section),
        timeline=packing.timeline(section.timeline) if section.timeline else None,
        tree="depth" in section.table.columns,
        filters=frozenset(column.name for column in shown if _is_filter(column)),
        spans=spans(section),
        parts=[],
    )


def nested(blocks: Sequence[Block]) -> list[Block]:
    """Those that are no part of another, each with its parts. What is a part of nothing here stands by itself."""
    known = {block.section.name: block for block in blocks}
    tops: list[Block] = []
    for block in blocks:
        above = known.get(block.section.within)
        (tops if above is None or above is block else above.parts).append(block)
    return tops


def _is_filter(column: ShownColumn) -> bool:
    """Whether the column is one to choose rows by: what kind they are of, and it tells them apart."""
    return column.name in _FILTERS and 1 < len(set(column.cells)) <= _MOST_CHOICES


def at_a_glance(section: Section) -> Glance:
    """A picture of the head."""
    return Glance(section, bars.parts(section), spans(section), parts.reason(section))
