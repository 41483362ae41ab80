"""The rows of a table as HTML. A page has tens of thousands of cells: the template engine would take ten times as long
for each of them."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup, escape

from perfkit_core.base.language.messages import say
from perfkit_core.output.renderers.cells import MISSING, cut
from perfkit_core.output.renderers.html.sections import LONGEST, SHORTEST, Block
from perfkit_core.output.renderers.table_columns import ShownColumn
from perfkit_core.trace.model.columns import ADDRESS


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
