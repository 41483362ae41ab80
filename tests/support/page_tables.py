"""Read the sections of a page, with their headings and rows, from its HTML only."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser


@dataclass(slots=True)
class Cell:
    """A cell of a table. ``text`` is the complete text, even if the page shortens it. ``order`` is the exact number. It
    is None for text."""

    text: str = ""
    order: str | None = None


@dataclass(slots=True)
class Shown:
    id: str
    title: str = ""
    headings: list[str] = field(default_factory=list)
    rows: list[list[Cell]] = field(default_factory=list)


class PageTables(HTMLParser):
    """A parser of pages. ``sections`` has the sections in the order of the page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.sections: list[Shown] = []
        self._open: list[Shown] = []
        self._add: Callable[[str], None] | None = None
        self._until = ""
        self._rest = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "section":
            self.sections.append(Shown(values["id"] or ""))
            self._open.append(self.sections[-1])
        elif self._open:
            self._inside(self._open[-1], tag, values)

    def _inside(self, section: Shown, tag: str, values: dict[str, str | None]) -> None:
        if tag in ("h2", "h3"):
            self._reading(tag, lambda text: setattr(section, "title", section.title + text))
        elif tag == "th":
            section.headings.append("")
            self._reading(tag, lambda text: section.headings.append(section.headings.pop() + text))
        elif tag == "tr":
            section.rows.append([])
        elif tag == "td":
            cell = Cell(order=values.get("data-order"))
            section.rows[-1].append(cell)
            self._reading(tag, lambda text: setattr(cell, "text", cell.text + text))
        elif values.get("class") == "full":
            section.rows[-1][-1].text = ""
        elif tag == "script" and (values.get("id") or "").endswith("-rest"):
            self._reading(tag, lambda text: setattr(self, "_rest", self._rest + text))

    def _reading(self, tag: str, add: Callable[[str], None]) -> None:
        self._until, self._add = tag, add

    def handle_data(self, data: str) -> None:
        if self._add:
            self._add(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == self._until:
            self._until, self._add = "", None
        if tag == "script" and self._rest:
            rest, self._rest = self._rest, ""
            rows = zlib.decompress(base64.b64decode(rest)).decode()
            self._open[-1].rows += PageTables(f'<section id="rest">{rows}</section>').sections[0].rows
        if tag == "section":
            section = self._open.pop()
            section.rows = [row for row in section.rows if row]


def without_libraries(page: str) -> str:
    """Return the page without its compressed libraries, which are the largest part."""
    return re.sub(r'<script type="text/plain" id="library-[^<]*</script>', "", page)


def page_sections(page: str) -> dict[str, Shown]:
    """Return the sections of a page by their titles."""
    found = PageTables(without_libraries(page)).sections
    return {section.title: section for section in found}
