"""A report as a self-contained HTML page, and as a fragment for the output of a notebook's cell. All names are escaped.

The page works offline. The fragment needs no script; its style applies only to itself, and follows the theme of
JupyterLab, VS Code and Colab."""

from __future__ import annotations

import functools
import re
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from perfkit_core.base.language.messages import language, say, texts_of
from perfkit_core.base.language.shortening import cut
from perfkit_core.base.language.units import FAMILIES
from perfkit_core.output.renderers import cells, parts
from perfkit_core.output.renderers.html import bars, charts, colours, packing, sections, table_rows
from perfkit_core.trace.model.columns import ADDRESS
from perfkit_core.trace.model.report_data import Report

if TYPE_CHECKING:
    import jinja2

_MAX_HTML_ROWS: Final = 500
_FEW_FINDINGS: Final = 3
"""Maximum number of data-quality warnings in the summary. The chapter on data quality has all."""
TIMELINE: Final = tuple(
    f"timeline{part}.js"
    for part in ("_data", "_view", "_drawing", "_texts", "_search", "_saving", "_walking", "_input", "")
)
"""Scripts of a timeline. A script may use the scripts before it."""


LINKS: Final = ("things.js", "cards.js", "search.js")
"""Scripts of the links between the things of a page, and of the search."""


def render(report: Report) -> str:
    blocks = sections.of_sections(report.sections)
    tops, findings = sections.nested(blocks), parts.findings(report)
    contents = sections.chapters(tops, len(findings))
    figures, rich = any(block.figure for block in blocks), any(block.rich for block in blocks)
    timelines = any(block.timeline for block in blocks)
    named = any(column.declared.thing not in ("", ADDRESS) for block in blocks for column in block.columns)
    linked = len(blocks) > 1 or timelines or named
    scripts = ["page.js"]
    if figures or timelines:
        scripts.append("units.js")
    scripts += charts.scripts({block.figure["kind"] for block in blocks if block.figure})
    if timelines:
        scripts += TIMELINE
    if any(block.section.code for block in blocks):
        scripts.append("copy.js")
    if linked:
        scripts += LINKS
    if rich or linked:
        scripts.append("tables.js")
    if linked:
        scripts.append("workspace.js")
    libraries = [*(["plotting"] if figures else []), *(["tables", "table-style"] if rich else [])]
    return template("report.html.j2").render(
        report=report,
        facts=parts.source_facts(report),
        findings=findings,
        warnings=[finding for finding in findings if not finding.note],
        few=_FEW_FINDINGS,
        beside_most=parts.BESIDE,
        blocks=tops,
        chapters=contents,
        single=sections.is_profile(contents),
        missing=sections.missing(tops),
        links=table_rows.links(report, blocks) if linked else "",
        ids={block.section.name: block.id for block in blocks},
        glance=list(map(sections.at_a_glance, report.glance)),
        style="\n".join(
            [colours.style(), *map(resource, ["pictures.css", "report.css", *(["workspace.css"] if linked else [])])]
        ),
        libraries={name: packing.library(name) for name in libraries},
        scripts=[resource(name) for name in scripts],
        plain=_MAX_HTML_ROWS,
        language=language(),
        texts={text: translation for name in scripts for text, translation in texts_of(resource(name)).items()},
        units=[kind.units for kind in FAMILIES] if "units.js" in scripts else None,
    )


def template(name: str) -> jinja2.Template:
    return _environment().get_template(name)


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(resource),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(say=say, address=ADDRESS, rows=table_rows.rows)
    environment.filters.update(visible=cells.visible, bar=table_rows.bar, cut=cut, packed=packing.packed)
    return environment


@functools.cache
def resource(name: str) -> str:
    return (files("perfkit_core.output.renderers.html") / "templates" / name).read_text(encoding="utf-8")


_DARK: Final = (
    '[data-jp-theme-light="false"]', ".vscode-dark", ".vscode-high-contrast:not(.vscode-high-contrast-light)",
    'html[theme="dark"]', 'html[data-theme="dark"]',
)  # fmt: skip
"""Ancestors of a cell's output in a dark notebook: of JupyterLab, VS Code (two), Colab, and sites made by Sphinx."""
_RULE: Final = re.compile(r"^([^\s@}][^{}]*)(?= \{)", re.MULTILINE)


def fragment(report: Report) -> str:
    """Return an element ``div`` of class ``perfkit`` with the report. Tables show ``Section.limit`` rows."""
    findings = parts.findings(report)
    return template("fragment.html.j2").render(
        report=report,
        lines=[line for source in report.sources if (line := parts.source_line(report, source))],
        warnings=[finding for finding in findings if not finding.note],
        notes=[finding for finding in findings if finding.note],
        glance=list(map(sections.at_a_glance, report.glance)),
        blocks=[
            (block, bars.parts(block.section), bars.waterfall(block.section), parts.more(block.section))
            for block in sections.of_sections(report.sections)
        ],
        style=fragment_style(),
        ids={},
    )


@functools.cache
def fragment_style() -> str:
    """Return the style sheet. Each rule begins a line, and gets the class of the fragment."""
    scoped = _RULE.sub(
        lambda rule: ", ".join(f".perfkit {selector.strip()}" for selector in rule[1].split(",")),
        resource("pictures.css") + resource("fragment.css"),
    )
    light, dark = (colours.variables(mode, soft=False) for mode in (0, 1))
    return f".perfkit {{ {light} }}\n{', '.join(f'{selector} .perfkit' for selector in _DARK)} {{ {dark} }}\n{scoped}"
