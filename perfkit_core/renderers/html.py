"""One self-contained HTML page that works offline: every name in it is text, whatever it contains."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from perfkit_core.language import language, retold, say, texts_of
from perfkit_core.renderers import charts, libraries, parts, shares, sources, timelines
from perfkit_core.renderers.cells import visible
from perfkit_core.renderers.columns import Column, columns
from perfkit_core.renderers.packing import packed
from perfkit_core.renderers.shortening import cut
from perfkit_core.renderers.spans import Spans, spans
from perfkit_core.report.model import Report, Section

if TYPE_CHECKING:
    import jinja2

_LONGEST = 60
"""Longer text is cut until it is clicked."""
_PLAIN: Final = 500
"""Rows of a table that stand in the page as they are; those after them are deflated."""
_FILTERS: Final = frozenset({"kind", "phase", "device", "place", "rank", "family", "found", "severity", "copy_kind"})
_FEW: Final = 8
TIMELINE: Final = tuple(
    f"timeline{part}.js" for part in ("_data", "_view", "_drawing", "_texts", "_search", "_saving", "_input", "")
)
"""The scripts of a timeline; each needs those before it."""
_MOST_CHOICES: Final = 30
_NARROW: Final = 3
"""Columns of a table that fit beside another part."""


@dataclass(frozen=True, slots=True)
class Block:
    """A section as the template needs it: formatted columns, rows of cells, how many rows come first."""

    section: Section
    id: str
    columns: list[Column]
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
        return len(self.rows) >= _FEW

    @property
    def wide(self) -> bool:
        """Whether a part needs all the room there is."""
        code = max(map(len, self.section.code.splitlines()), default=0)
        return len(self.columns) > _NARROW or self.spans is not None or code > _LONGEST


@dataclass(frozen=True, slots=True)
class Glance:
    """A picture of the head: the parts of a whole, or intervals."""

    section: Section
    shares: tuple[shares.Part, ...]
    spans: Spans | None
    reason: str


def render(report: Report) -> str:
    """The report as one HTML page."""
    blocks = [_block(index, section) for index, section in enumerate(report.sections)]
    tops = _nested(blocks)
    scripts = list(_scripts(blocks))
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            facts=sources.facts(report),
            findings=sources.findings(report),
            beside_most=sources.BESIDE,
            blocks=tops,
            ids={block.section.name: block.id for block in blocks},
            glance=[Glance(one, shares.parts(one), spans(one), parts.reason(one)) for one in report.glance],
            style=_resource("report.css"),
            libraries=_libraries(blocks),
            scripts=[_resource(name) for name in scripts],
            longest=_LONGEST,
            plain=_PLAIN,
            language=language(),
            texts={text: said for name in scripts for text, said in texts_of(name).items()},
        )
    )


def _libraries(blocks: Sequence[Block]) -> dict[str, str]:
    """What the scripts need, by id."""
    found = {}
    if any(block.figure for block in blocks):
        found["plotting"] = libraries.plotting()
    if any(block.rich for block in blocks):
        found |= {"tables": libraries.tables(), "table-style": libraries.table_style()}
    return found


def _scripts(blocks: Sequence[Block]) -> Iterator[str]:
    """The page's own scripts, as far as there is something for them to do."""
    yield "page.js"
    yield from charts.scripts({block.figure["kind"] for block in blocks if block.figure})
    if any(block.timeline for block in blocks):
        yield from TIMELINE
    if any(block.section.code for block in blocks):
        yield "copy.js"
    if any(block.rich for block in blocks):
        yield "tables.js"


def _block(index: int, section: Section) -> Block:
    shown = columns(section.table, section.limit, section.unit, "· ", section.headings)
    return Block(
        section=section,
        id=f"section-{index}",
        columns=shown,
        rows=list(zip(*(column.cells for column in shown), strict=True)),
        first=len(parts.shown(section)),
        unknown=list(parts.unknown(section, section.table)),
        reason=parts.reason(section),
        figure=charts.figure(section),
        timeline=timelines.payload(section.timeline) if section.timeline else None,
        tree="depth" in section.table.columns,
        filters=frozenset(column.name for column in shown if _is_filter(column)),
        spans=spans(section),
        parts=[],
    )


def _nested(blocks: Sequence[Block]) -> list[Block]:
    """Those that are no part of another, each with its parts. What is a part of nothing here stands by itself."""
    known = {block.section.name: block for block in blocks}
    tops: list[Block] = []
    for block in blocks:
        above = known.get(block.section.within)
        (tops if above is None or above is block else above.parts).append(block)
    return tops


def _is_filter(column: Column) -> bool:
    """Whether the column is one to choose rows by: what kind they are of, and it tells them apart."""
    return column.name in _FILTERS and 1 < len(set(column.cells)) <= _MOST_CHOICES


def bar(share: float | None) -> str:
    """Width of a share's bar in percent: 0 to 100, whatever the share is."""
    return f"{100 * min(max(share or 0.0, 0.0), 1.0):.1f}"


def bare(value: str, name: str) -> str:
    """A fact without the word that stands over it: ``2 steps`` below ``Steps`` is ``2``."""
    word = re.escape(say(name).lower().removesuffix("s"))
    return re.sub(rf"^{word}s?\s+|\s+{word}s?$", "", value, flags=re.IGNORECASE)


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_resource),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(say=say, retold=retold)
    environment.filters.update(visible=visible, bar=bar, cut=cut, bare=bare, packed=packed)
    return environment


@functools.cache
def _resource(name: str) -> str:
    return (files("perfkit_core.renderers") / "templates" / name).read_text(encoding="utf-8")
