"""Update the translation catalogues from the code: ``python tools/translations.py``.

The program writes ``perfkit_core/base/language/messages.pot``: all texts, with the files that contain them. This file
is not committed. In each ``.po`` file, existing translations stay. New texts get an empty translation, and unused
texts are removed. The texts are sorted and have no file names, so moving code does not change a ``.po`` file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po, write_po

from perfkit_core.base.language.messages import LANGUAGES, WORDS
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.columns import MAKERS

ROOT: Final = Path(__file__).parents[1]
CATALOGUES: Final = ROOT / "perfkit_core" / "base" / "language"
TEMPLATE: Final = CATALOGUES / "messages.pot"
_FORMATS: Final = [("**.py", "python"), ("**.j2", "jinja2"), ("**.js", "javascript")]
_KEYWORDS: Final = {"say": None, "mark": None, "message": None, "plural": (1, 2)}
_PACKAGES: Final = ("perfkit_core", "perfkit_torch", "perfkit_paddle")
_OF_LISTS: Final = (", ", "; ", "{names} and {last}")
"""Separators between list items, used by the formatter of messages."""

Id = str | tuple[str, ...]


def main() -> None:
    extracted = messages()
    with TEMPLATE.open("wb") as file:
        write_po(file, extracted, width=120, omit_header=True, include_lineno=False)
    for language in LANGUAGES[1:]:
        path = CATALOGUES / f"{language}.po"
        catalogue = read(path)
        catalogue.update(extracted, no_fuzzy_matching=True)
        write(catalogue, path)


def read(path: Path) -> Catalog:
    with path.open("rb") as file:
        return read_po(file, locale=path.stem, charset="utf-8")


def write(catalogue: Catalog, path: Path) -> None:
    """Write a catalogue of translations in a form that changes only if the texts change."""
    with path.open("wb") as file:
        write_po(file, catalogue, width=120, omit_header=True, no_location=True, sort_output=True, ignore_obsolete=True)


def messages() -> Catalog:
    """Return all texts, without translations: those in files, and those that plugins register."""
    catalogue = Catalog(project="perfkit", charset="utf-8", fuzzy=False)
    for place, text in (*_written(), *_registered(), *(("lists", text) for text in _OF_LISTS)):
        if text:
            catalogue.add(text, locations=[(place, 1)])
    return catalogue


def _written() -> Iterator[tuple[str, Id]]:
    for package in _PACKAGES:
        calls = extract_from_dir(str(ROOT / package), _FORMATS, keywords=_KEYWORDS)
        for file, _, text, _, _ in sorted(calls, key=lambda call: call[0]):
            yield f"{package}/{Path(file).as_posix()}", text


def _registered() -> Iterator[tuple[str, Id]]:
    """Yield titles, descriptions and headings of views, titles of rules, and notes of remedies."""
    plugins = get_plugins()
    for view in plugins.views().values():
        yield from (("views", text) for text in (view.title, view.description))
    yield from (("headings", column.title) for view in plugins.views().values() for column in view.columns)
    yield from _titles()
    yield from (("words", word) for word in (*schema.KINDS, *schema.PHASES, *WORDS))
    for rule in plugins.rules().values():
        yield "rules", rule.title
    for _, framework in sorted(plugins.frameworks().items()):
        yield from (("remedies", remedy.note) for remedy in framework.remedies())
    broken = [f"{name} ({plugin.error})" for name, plugin in plugins.listed.items() if plugin.error]
    if broken:  # their translations would be removed
        raise SystemExit(f"plugins cannot be loaded: {', '.join(broken)}")


def _titles() -> Iterator[tuple[str, Id]]:
    """Yield the headings of declared columns."""
    makers = dict.fromkeys(MAKERS, (2,))
    for package in _PACKAGES:
        calls = extract_from_dir(str(ROOT / package), _FORMATS, keywords=makers)
        yield from (("headings", text) for _, _, text, _, _ in calls)


if __name__ == "__main__":
    main()
