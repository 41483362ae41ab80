"""Sections for the templates of the page: formatted columns, cells, charts and nested sections. The chapters of a page:
the sections that its sidebar lists together, and the list of what was not recorded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from perfkit_core.base.language.messages import mark, say
from perfkit_core.output.renderers import parts
from perfkit_core.output.renderers.html import bars, charts, packing
from perfkit_core.output.renderers.html.bars import Spans, spans
from perfkit_core.output.renderers.table_columns import ShownColumn, by_worth, columns, values
from perfkit_core.trace.model.report_data import Section

LONGEST: Final = 60
"""Maximum length of a text in characters. Longer text is shown shortened. A click shows all of it."""
SHORTEST: Final = 24
"""A text of at most this many characters is not wrapped, except in print."""
_FILTERS: Final = frozenset({"kind", "phase", "device", "place", "rank", "family", "found", "severity", "copy_kind"})
_NO_ID: Final = re.compile(r"[^A-Za-z0-9_.:-]")
_RESERVED: Final = ("all", "summary", "memory", "quality", "findings", "missing", "found", "links", "texts", "units")
"""Ids that are no section: addresses of chapters, lists in the chapter on data quality, and data of the scripts."""
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
    ids: dict[str, tuple[str, ...]]  # column → the ids that its cells show as words
    parts: list[Block]

    @property
    def rich(self) -> bool:
        """Whether the table is long enough to have search and sorting."""
        return len(self.rows) >= (_FEW_OF_A_PART if self.section.within else _FEW)

    @property
    def wide(self) -> bool:
        """Whether the nested section needs the full width of the page."""
        code = max(map(len, self.section.code_lines), default=0)
        return len(self.columns) > _NARROW or self.spans is not None or code > LONGEST


def of_sections(sections: Sequence[Section]) -> list[Block]:
    """Return the sections for the template. The id of a section is its name, with a number if an earlier one has it."""
    blocks: list[Block] = []
    used_ids = set(_RESERVED)
    for section in sections:
        name = _NO_ID.sub("-", section.name) or "section"
        numbers = (f"{name}-{number}" for number in count(2))
        id = name if name not in used_ids else next(candidate for candidate in numbers if candidate not in used_ids)
        used_ids.add(id)
        blocks.append(of_section(id, section))
    return blocks


def of_section(id: str, section: Section) -> Block:
    table = parts.recorded_table(section)
    shown = columns(table, section.columns, section.limit, section.unit, "· ")
    shown = shown if section.chosen else by_worth(shown)
    return Block(
        section=section,
        id=id,
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
        ids={
            column.name: tuple(key if str(key).isidentifier() else "" for key in values(table[column.name]))
            for column in shown
            if column.declared.words == "ids"
        },
        parts=[],
    )


def nested(blocks: Sequence[Block]) -> list[Block]:
    by_name = {block.section.name: block for block in blocks}
    tops: list[Block] = []
    for block in blocks:
        above = by_name.get(block.section.within)
        (tops if above is None or above is block else above.parts).append(block)
    return tops


def at_a_glance(section: Section) -> dict[str, Any]:
    reason = parts.reason(section)
    return {"section": section, "shares": bars.parts(section), "spans": spans(section), "reason": reason}


SUMMARY: Final = "summary"
QUALITY: Final = "quality"
_CHAPTERS: Final = {
    SUMMARY: (mark("Summary"), (
        "gate", "waterfall", "causes", "bounds", "steps", "step_time", "statistics", "normalised", "partition",
        "step_trace", "input_pipeline", "overview", "model", "phases", "device", "devices", "outliers",
    )),
    "attribution": (mark("Causes"), (
        "step_parts", "attribution", "matched", "unmatched", "new_step_time", "new_causes", "new_layers",
    )),
    "advice": (mark("Advice"), ("advice",)),
    "timeline": (mark("Timeline"), ("timeline", "critical_path")),
    "operators": (mark("Operators"), (
        "operators", "families", "operator_kinds", "operator_tree", "memory_manipulation", "annotations",
    )),
    "kernels": (mark("Kernels"), ("kernels", "compiled", "memcpy")),
    "hardware": (mark("Hardware"), ("roofline", "gemm", "model_flops")),
    "layers": (mark("Layers"), ("modules",)),
    "code": (mark("Code"), ("code",)),
    "memory": (mark("Memory"), (
        "memory_curve", "memory_category_curve", "memory_places", "memory_categories", "memory", "memory_peak",
        "memory_steps", "memory_leaks",
    )),
    "communication": (mark("Communication"), ("distributed", "collectives", "point_to_point", "pipeline")),
    "ranks": (mark("Ranks"), ("ranks", "stragglers", "imbalance", "clocks")),
    QUALITY: (mark("Data quality"), ("account",)),
}  # fmt: skip
"""Key of the chapter, which is its address on the page → title, and names of its sections. Any other section is a
chapter of its own."""
_ANSWERS: Final = frozenset({"advice", "waterfall", "runs"})
"""Sections whose empty table is an answer: nothing to change, nothing differs, no runs."""


@dataclass(frozen=True, slots=True)
class Chapter:
    """Sections that the page shows together. ``anchor`` is the id of the chapter, "" if one of its sections has it."""

    key: str
    title: str
    blocks: tuple[Block, ...]
    anchor: str = ""


def chapters(blocks: Sequence[Block], findings: int) -> list[Chapter]:
    """Return the chapters of a page: the summary, the chapters with sections, other sections, and data quality."""
    of_section = {name: key for key, (_, names) in _CHAPTERS.items() for name in names}
    members: dict[str, list[Block]] = {key: [] for key in _CHAPTERS}
    for block in recorded(blocks):
        members.setdefault(of_section.get(block.section.name, block.id), []).append(block)
    result = []
    quality = tuple(members.pop(QUALITY))
    for key, of_chapter in members.items():
        if of_chapter or key == SUMMARY:
            title = say(_CHAPTERS[key][0]) if key in _CHAPTERS else of_chapter[0].section.title
            anchor = "" if any(block.id == key for block in of_chapter) else key
            result.append(Chapter(key, title, tuple(of_chapter), anchor))
    if findings or quality or missing(blocks):
        result.append(Chapter(QUALITY, say("Data quality"), quality, QUALITY))
    return result


def recorded(blocks: Sequence[Block]) -> list[Block]:
    """Return the sections with content. If there is none, return all, because a page must show something."""
    return [block for block in blocks if not _lacks(block)] or list(blocks)


def missing(blocks: Sequence[Block]) -> list[tuple[str, list[Block]]]:
    """Return each reason why sections have no content, with these sections."""
    reasons: dict[str, list[Block]] = {}
    shown = recorded(blocks)
    for block in blocks:
        if block not in shown:
            reasons.setdefault(block.reason, []).append(block)
    return list(reasons.items())


def is_profile(page_chapters: Iterable[Chapter]) -> bool:
    """Return whether the page has sections of the summary. Such a page opens with its summary only."""
    return any(chapter.key == SUMMARY and chapter.blocks for chapter in page_chapters)


def _lacks(block: Block) -> bool:
    section = block.section
    empty = section.table.empty and not section.only_text and not section.lines and not block.parts
    return empty and section.name not in _ANSWERS
