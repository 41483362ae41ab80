"""The language of the moment, and texts in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from typing import Final

from perfkit_core.language.catalogue import Catalogue, read

LANGUAGES: Final = ("en", *sorted(one.name[:-3] for one in files(__package__).iterdir() if one.name.endswith(".po")))
"""Their codes: English, and those that have a catalogue."""
_ENGLISH: Final = Catalogue({}, {})

# Of the process, not of a thread: tables and texts are also made by worker threads.
_name, _catalogue = "en", _ENGLISH


def translate(text: str, plural: str | None = None, count: int = 1) -> str:
    """Return the template in the language of the moment, the English one where it has no translation."""
    if plural is not None and count != 1:
        return _catalogue.texts.get(plural, plural)
    return _catalogue.texts.get(text, text)


def in_english(text: str, /, **values: object) -> str:
    """A text that is kept, and said in another language only when it is shown: see :func:`retold`."""
    return _filled(text, values)


def retold(text: str) -> str:
    """What :func:`in_english` made, perhaps in another process and long ago, in the language of the moment."""
    return _catalogue.retold(text)


def language() -> str:
    """The code of the language of the moment."""
    return _name


@contextmanager
def speaking(name: str) -> Iterator[None]:
    """Speak a language of ``LANGUAGES``, then the one before. Not for several languages at once."""
    global _name, _catalogue
    before = _name, _catalogue
    _name, _catalogue = name, _ENGLISH if name == "en" else read(name)
    try:
        yield
    finally:
        _name, _catalogue = before


def texts_of(file: str) -> Mapping[str, str]:
    """What one file says: English → language of the moment. For scripts that a page carries."""
    return {text: _catalogue.texts[text] for text in _catalogue.said_by.get(file, ())}


def _filled(text: str, values: Mapping[str, object]) -> str:
    return text.format(**values) if values else text
