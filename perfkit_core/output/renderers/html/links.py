"""The data of the links of a page: the things that its tables name, where they are, and which belong together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from perfkit_core.base.language.messages import mark, say
from perfkit_core.output.renderers.cells import text, visible
from perfkit_core.output.renderers.html.packing import packed
from perfkit_core.output.renderers.html.sections import Block
from perfkit_core.trace.model.columns import ADDRESS
from perfkit_core.trace.model.report_data import Report

_TITLES: Final = {
    "step": mark("Steps"), "advice": mark("Advice"), "operator": mark("Operators"), "kernel": mark("Kernels"),
    "module": mark("Layers"), "code": mark("Lines of code"), "path": mark("Critical path"),
}  # fmt: skip
"""Kind of thing → title of a list of such things, in the order of the lists."""


def links(report: Report, blocks: Sequence[Block]) -> str:
    """Return the packed JSON of the links of a page. Names are the texts of the cells.

    - ``kinds``: kind → ``title``, ``home`` (id of the first section that has a row for each thing), ``names`` and
      ``labels`` (texts to show instead of the names, or null)
    - ``places``: ``[section id, title, kind, indices of the names in its table]``
    - ``related``: ``"KIND KIND"`` → indices of the names of pairs: first, second, first, second, …"""
    kinds: dict[str, Any] = {}
    number: dict[str, dict[str, int]] = {}
    places = []
    for block in blocks:
        for column in block.columns:
            kind = column.declared.thing
            if kind in ("", ADDRESS):
                continue
            names = [name.lstrip("· ") for name in column.cells]
            if kind not in kinds:
                number[kind] = {name: at for at, name in enumerate(dict.fromkeys(filter(None, names)))}
                kinds[kind] = {
                    "title": say(_TITLES.get(kind, kind.capitalize())),
                    "home": block.id,
                    "names": list(number[kind]),
                    "labels": _labels(block, names, number[kind]),
                }
            indices = {number[kind][name]: None for name in names if name in number[kind]}
            places.append([block.id, block.section.title, kind, list(indices)])
    related = {}
    for (first, second), pairs in report.links.items():
        if first not in kinds or second not in kinds:
            continue
        numbered = [(number[first].get(visible(left)), number[second].get(visible(right))) for left, right in pairs]
        related[f"{first} {second}"] = [at for pair in numbered if None not in pair for at in pair]
    ordered = {kind: kinds[kind] for kind in (*_TITLES, *kinds) if kind in kinds}
    return packed(json.dumps({"kinds": ordered, "places": places, "related": related}, separators=(",", ":")))


def _labels(block: Block, names: Sequence[str], number: dict[str, int]) -> list[str] | None:
    """Return the labels of things that ids name: the texts of the column that names the rows of the chart."""
    chart, table = block.section.chart, block.section.table
    if "id" not in table.columns or chart is None or chart.x not in table.columns:
        return None
    labels = {name: text(label) for name, label in zip(names, table[chart.x].to_list(), strict=True)}
    return [labels[name] for name in number]
