"""Sections for the templates of the page: formatted columns, cells, charts and nested sections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from perfkit_core.model.report_data import Section
from perfkit_core.renderers import parts
from perfkit_core.renderers.html import bars, charts, packing
from perfkit_core.renderers.html.bars import Spans, spans
from perfkit_core.renderers.table_columns import ShownColumn, columns

LONGEST: Final = 60
"""Maximum length of a text in characters. Longer text is shown shortened. A click shows all of it."""
SHORTEST: Final = 24
"""A text of at most this many characters is not wrapped, except in print."""
_FILTERS: Final = frozenset({"kind", "phase", "device", "place", "rank", "family", "found", "severity", "copy_kind"})
_FEW: Final = 8
_FEW_OF_A_PART: Final = 20
_MOST_CHOICES: Final = 30
_NARROW: Final = 3
"""Maximum number of columns of a table that fits next to another nested section."""


@dataclass(frozen=True, slots=True)
class Block:
    """A section for the template. ``first`` is the number of rows that the page shows initially."""

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
        """Whether the table is long enough to have search and sorting."""
        return len(self.rows) >= (_FEW_OF_A_PART if self.section.within else _FEW)

    @property
    def wide(self) -> bool:
        """Whether the nested section needs the full width of the page."""
        code = max(map(len, self.section.code.splitlines()), default=0)
        return len(self.columns) > _NARROW or self.spans is not None or code > LONGEST


def of_section(index: int, section: Section) -> Block:
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
        filters=frozenset(
            column.name for column in shown if column.name in _FILTERS and 1 < len(set(column.cells)) <= _MOST_CHOICES
        ),
        spans=spans(section),
        parts=[],
    )


def nested(blocks: Sequence[Block]) -> list[Block]:
    known = {block.section.name: block for block in blocks}
    tops: list[Block] = []
    for block in blocks:
        above = known.get(block.section.within)
        (tops if above is None or above is block else above.parts).append(block)
    return tops


def at_a_glance(section: Section) -> dict[str, Any]:
    reason = parts.reason(section)
    return {"section": section, "shares": bars.parts(section), "spans": spans(section), "reason": reason}
