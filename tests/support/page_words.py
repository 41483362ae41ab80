"""The texts of a page that people read, without table cells, code and scripts."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Final

_DATA: Final = frozenset({"td", "code", "pre", "script", "style", "option"})
_READ: Final = ("aria-label", "placeholder", "title")
_VOID: Final = frozenset({"input", "meta", "link", "br", "img"})
_ENGLISH: Final = re.compile(r"\b[a-z]+(?:[ ,;:]+[a-z]+){2,}\b", re.IGNORECASE)
"""Matches three consecutive words."""
_COMMANDS: Final = re.compile(r"perfkit [a-z]+( SOURCE)?( --?[a-z-]+( \w+)?)*( [\w.]+\.(gz|json))?")


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.inside: list[str] = []
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in _VOID:
            self.inside.append(tag)
        if not _DATA & set(self.inside[:-1]):
            self.found += [value for name, value in attributes if name in _READ and value]

    def handle_endtag(self, tag: str) -> None:
        while tag in self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if data.strip() and not _DATA & set(self.inside):
            self.found.append(data.strip())


def texts(page: str) -> list[str]:
    """Return the texts of a page, its labels and its titles, in the order of the page."""
    parser = _Words()
    parser.feed(page)
    return parser.found


def english(page: str, names: tuple[str, ...] = ()) -> list[str]:
    """Return the texts that contain three consecutive English words. Commands and the ``names`` of the recording are
    ignored."""
    found = []
    for text in texts(page):
        rest = _COMMANDS.sub("", text)
        for name in names:
            rest = rest.replace(name, "")
        if _ENGLISH.search(rest):
            found.append(text)
    return found
