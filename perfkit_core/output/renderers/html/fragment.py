"""A report as a fragment of HTML for the output of a notebook's cell.

It needs no script and no network. Its style applies only to itself, and follows the theme of JupyterLab, VS Code and
Colab. All names are escaped."""

from __future__ import annotations

import functools
import re
from typing import Final

from perfkit_core.output.renderers import parts
from perfkit_core.output.renderers.html import bars, colours, page, sections
from perfkit_core.trace.model.report_data import Report

_DARK: Final = (
    '[data-jp-theme-light="false"]', ".vscode-dark", ".vscode-high-contrast:not(.vscode-high-contrast-light)",
    'html[theme="dark"]', 'html[data-theme="dark"]',
)  # fmt: skip
"""Ancestors of a cell's output in a dark notebook: of JupyterLab, VS Code (two), Colab, and sites made by Sphinx."""
_RULE: Final = re.compile(r"^([^\s@}][^{}]*)(?= \{)", re.MULTILINE)


def render(report: Report) -> str:
    """Return an element ``div`` of class ``perfkit`` with the report. Tables show ``Section.limit`` rows."""
    findings = parts.findings(report)
    return page.template("fragment.html.j2").render(
        report=report,
        lines=[line for source in report.sources if (line := parts.source_line(report, source))],
        warnings=[finding for finding in findings if not finding.note],
        notes=[finding for finding in findings if finding.note],
        glance=list(map(sections.at_a_glance, report.glance)),
        blocks=[
            (block, bars.parts(block.section), bars.waterfall(block.section), parts.more(block.section))
            for block in sections.of_sections(report.sections)
        ],
        style=style(),
        ids={},
    )


@functools.cache
def style() -> str:
    """Return the style sheet. Each rule begins a line, and gets the class of the fragment."""
    scoped = _RULE.sub(
        lambda rule: ", ".join(f".perfkit {selector.strip()}" for selector in rule[1].split(",")),
        page.resource("pictures.css") + page.resource("fragment.css"),
    )
    light, dark = (colours.variables(mode, soft=False) for mode in (0, 1))
    return f".perfkit {{ {light} }}\n{', '.join(f'{selector} .perfkit' for selector in _DARK)} {{ {dark} }}\n{scoped}"
