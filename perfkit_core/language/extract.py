"""Which texts are there to translate? Those that code, templates and scripts say, and those that plugins register."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Final

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir

from perfkit_core import schema
from perfkit_core.language.catalogue import KEPT
from perfkit_core.language.columns import WORDS
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.table_columns import MAKERS

_HOW: Final = [("**.py", "python"), ("**.j2", "jinja2"), ("**.js", "javascript")]
_PACKAGES: Final = ("perfkit_core", "perfkit_torch", "perfkit_paddle")


def messages() -> Catalog:
    """All texts without translations: those of files in the order of files, then what is registered."""
    found = Catalog(project="perfkit", charset="utf-8", fuzzy=False)
    kept = [*_written("in_english")]
    retold = ((KEPT, text) for _, text in kept)  # what may stand filled in somewhere
    for place, text in (*_written("say"), *kept, *retold, *_registered()):
        if text:
            found.add(text, locations=[(place, 1)])
    return found


def _written(*functions: str, argument: int = 1) -> Iterator[tuple[str, str]]:
    for package in _PACKAGES:
        found = extract_from_dir(str(files(package)), _HOW, keywords=dict.fromkeys(functions, (argument,)))
        for file, _, text, _, _ in sorted(found, key=lambda one: one[0]):
            if isinstance(text, str):
                yield f"{package}/{Path(file).as_posix()}", text


def _titles() -> Iterator[tuple[str, str]]:
    """Headings of columns, where they are declared."""
    yield from (("headings", title) for _, title in _written(*MAKERS, argument=2))


def _registered() -> Iterator[tuple[str, str]]:
    """Titles, descriptions and headings of views; titles of rules; notes of remedies."""
    plugins = get_plugins()
    for view in plugins.views().values():
        yield from (("views", text) for text in (view.title, view.description))
    yield from (("headings", known.title) for view in plugins.views().values() for known in view.columns)
    yield from _titles()
    yield from (("words", word) for word in (*schema.KINDS, *schema.PHASES, *WORDS))
    for rule in plugins.rules().values():
        yield "rules", rule.title
    for framework in plugins.remedied_frameworks():
        yield from (("remedies", remedy.note) for remedy in plugins.remedies(framework))
