"""The chapters of a page: the sections that its sidebar lists together, and the list of what was not recorded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from perfkit_core.base.language.messages import mark, say
from perfkit_core.output.renderers.html.sections import Block

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
