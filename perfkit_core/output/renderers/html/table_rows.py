"""The rows of a table as HTML. A page has tens of thousands of cells: the template engine would take ten times as long
for each of them. Also the data of the links between the things that the tables name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from markupsafe import Markup, escape

from perfkit_core.base.language.messages import mark, say
from perfkit_core.base.language.shortening import cut
from perfkit_core.output.renderers.cells import MISSING, text, visible
from perfkit_core.output.renderers.html.packing import packed
from perfkit_core.output.renderers.html.sections import LONGEST, SHORTEST, Block
from perfkit_core.output.renderers.table_columns import ShownColumn
from perfkit_core.trace.model.columns import ADDRESS
from perfkit_core.trace.model.report_data import Report


def rows(block: Block, begin: int, end: int) -> Markup:
    """Return the rows ``begin`` to ``end`` of a section's table. Rows that the page hides at first are marked."""
    end = min(end, len(block.rows))
    opening = ['<tr class="more">' if row >= block.first else "<tr>" for row in range(begin, end)]
    cells = [_cells(column, block.ids.get(column.name), begin, end) for column in block.columns]
    return Markup("".join(f"{''.join(row)}</tr>\n" for row in zip(opening, *cells, strict=True)))


def bar(share: float | None) -> str:
    """Return the share as the width of a bar: a percentage from 0 to 100."""
    return f"{100 * min(max(share or 0.0, 0.0), 1.0):.1f}"


def _cells(column: ShownColumn, ids: tuple[str, ...] | None, begin: int, end: int) -> Iterator[str]:
    texts, order = column.cells[begin:end], column.order[begin:end]
    if column.shares:
        for text, key, share in zip(texts, order, column.shares[begin:end], strict=True):
            width = f"--share:{bar(share)}%"
            yield f'<td class="num share" data-order="{escape(key)}" style="{width}">{escape(text)}</td>'
    elif column.numeric:
        for text, key in zip(texts, order, strict=True):
            yield f'<td class="num" data-order="{escape(key)}">{escape(text)}</td>'
    elif ids is not None:
        for text, id in zip(texts, ids[begin:end], strict=True):
            title = f' title="{escape(id)}"' if id else ""
            yield f"<td{title}><bdi>{escape(text)}</bdi></td>"
    else:
        yield from map(_link if column.declared.thing == ADDRESS else _text, texts)


def _link(text: str) -> str:
    if text == MISSING:
        return _text(text)
    word = escape(say("Open"))
    return f'<td><a href="{escape(text)}">{word}</a></td>'


def _text(text: str) -> str:
    if len(text) > LONGEST:
        title, short = escape(say("Click to show the full text")), escape(cut(text, LONGEST))
        both = f'<bdi class="short">{short}</bdi><bdi class="full">{escape(text)}</bdi>'
        return f'<td class="long" tabindex="0" title="{title}">{both}</td>'
    name = ' class="name"' if len(text) > SHORTEST else ""
    return f"<td{name}><bdi>{escape(text)}</bdi></td>"


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
