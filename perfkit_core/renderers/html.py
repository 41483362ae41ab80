"""One self-contained HTML page that works offline: every name in it is text, whatever it contains."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from perfkit_core.renderers import charts, parts, timelines
from perfkit_core.renderers.cells import visible
from perfkit_core.renderers.columns import Column, columns
from perfkit_core.renderers.shortening import cut
from perfkit_core.report.model import Report, Section

if TYPE_CHECKING:
    import jinja2

_LONGEST = 60
"""Longer text is cut until it is clicked."""


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


def render(report: Report) -> str:
    """The report as one HTML page."""
    blocks = [_block(index, section) for index, section in enumerate(report.sections)]
    with_charts = any(block.figure for block in blocks)
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            blocks=blocks,
            style=_resource("report.css"),
            script=_resource("charts.js") if with_charts else "",
            library=charts.library() if with_charts else "",
            timelines=_resource("timeline.js") if any(block.timeline for block in blocks) else "",
            longest=_LONGEST,
        )
    )


def _block(index: int, section: Section) -> Block:
    shown = columns(section.table, section.limit, section.unit, indent="· ")
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
    )


def bar(share: float | None) -> str:
    """Width of a share's bar in percent: 0 to 100, whatever the share is."""
    return f"{100 * min(max(share or 0.0, 0.0), 1.0):.1f}"


def bare(value: str, name: str) -> str:
    """A fact without the word that stands over it: ``2 steps`` below ``Steps`` is ``2``."""
    word = re.escape(name.lower().removesuffix("s"))
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
    environment.filters.update(visible=visible, bar=bar, cut=cut, bare=bare)
    return environment


@functools.cache
def _resource(name: str) -> str:
    return (files("perfkit_core.renderers") / "templates" / name).read_text(encoding="utf-8")
