"""One self-contained HTML page that works offline: every name in it is text, whatever it contains."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from perfkit_core.language.messages import language, say, texts_of
from perfkit_core.language.units import FAMILIES
from perfkit_core.renderers import parts
from perfkit_core.renderers.cells import cut, visible
from perfkit_core.renderers.html import charts, packing
from perfkit_core.renderers.html.packing import packed
from perfkit_core.renderers.html.sections import LONGEST, SHORTEST, Block, at_a_glance, nested, of_section
from perfkit_core.report.model import Report

if TYPE_CHECKING:
    import jinja2

_PLAIN: Final = 500
"""Rows of a table that stand in the page as they are; those after them are deflated."""
TIMELINE: Final = tuple(
    f"timeline{part}.js"
    for part in ("_data", "_view", "_drawing", "_texts", "_search", "_saving", "_walking", "_input", "")
)
"""The scripts of a timeline; each needs those before it."""


def render(report: Report) -> str:
    """The report as one HTML page."""
    blocks = [of_section(index, section) for index, section in enumerate(report.sections)]
    tops = nested(blocks)
    scripts = list(_scripts(blocks))
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            facts=parts.source_facts(report),
            findings=parts.findings(report),
            beside_most=parts.BESIDE,
            blocks=tops,
            ids={block.section.name: block.id for block in blocks},
            glance=list(map(at_a_glance, report.glance)),
            style=_resource("report.css"),
            libraries=_libraries(blocks),
            scripts=[_resource(name) for name in scripts],
            longest=LONGEST,
            shortest=SHORTEST,
            plain=_PLAIN,
            language=language(),
            texts={text: said for name in scripts for text, said in texts_of(_resource(name)).items()},
            units=[kind.units for kind in FAMILIES] if "units.js" in scripts else None,
        )
    )


def _libraries(blocks: Sequence[Block]) -> dict[str, str]:
    """What the scripts need, by id."""
    found = {}
    if any(block.figure for block in blocks):
        found["plotting"] = packing.plotting()
    if any(block.rich for block in blocks):
        found |= {"tables": packing.tables(), "table-style": packing.table_style()}
    return found


def _scripts(blocks: Sequence[Block]) -> Iterator[str]:
    """The page's own scripts, as far as there is something for them to do."""
    yield "page.js"
    if any(block.figure or block.timeline for block in blocks):
        yield "units.js"
    yield from charts.scripts({block.figure["kind"] for block in blocks if block.figure})
    if any(block.timeline for block in blocks):
        yield from TIMELINE
    if any(block.section.code for block in blocks):
        yield "copy.js"
    if any(block.rich for block in blocks):
        yield "tables.js"


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
    environment.globals.update(say=say)
    environment.filters.update(visible=visible, bar=bar, cut=cut, bare=bare, packed=packed)
    return environment


@functools.cache
def _resource(name: str) -> str:
    return (files("perfkit_core.renderers.html") / "templates" / name).read_text(encoding="utf-8")
