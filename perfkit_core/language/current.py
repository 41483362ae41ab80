"""The language of the moment, and the catalogues of translations."""

from __future__ import annotations

import functools
import gettext
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Final

from perfkit_core.errors import UsageError

_FOLDER: Final = Path(__file__).parent
LANGUAGES: Final = ("en", *sorted({file.stem for kind in ("*.mo", "*.po") for file in _FOLDER.glob(kind)}))
"""Their codes: English, and those that have a catalogue."""
_SAID_BY_SCRIPT: Final = re.compile(r'\bpage\.say\(("(?:[^"\\]|\\.)*")')

# Of the process, not of a thread: tables and texts are also made by worker threads.
_name, _catalogue = "en", gettext.NullTranslations()


def translate(text: str, plural: str | None = None, count: int = 1) -> str:
    """Return the template in the language of the moment, the English one where it has no translation."""
    if plural is not None:
        return _catalogue.ngettext(text, plural, count)
    return _catalogue.gettext(text) if text else ""  # the entry of "" is the header of the catalogue


def language() -> str:
    """Return the code of the language of the moment."""
    return _name


@contextmanager
def speaking(name: str) -> Iterator[None]:
    """Speak a language of ``LANGUAGES``, then the one before. Not for several languages at once."""
    global _name, _catalogue
    before = _name, _catalogue
    _name, _catalogue = name, gettext.NullTranslations() if name == "en" else read(name)
    try:
        yield
    finally:
        _name, _catalogue = before


def texts_of(script: str) -> Mapping[str, str]:
    """Return the translations of what a script of a page says: English → language of the moment."""
    texts = [json.loads(literal) for literal in _SAID_BY_SCRIPT.findall(script)]
    return {text: translate(text) for text in texts if translate(text) != text}


@functools.cache
def read(language: str) -> gettext.GNUTranslations:
    """Return the catalogue of a language. Raises UsageError where it is not built."""
    compiled, source = _FOLDER / f"{language}.mo", _FOLDER / f"{language}.po"
    if compiled.exists() and not (source.exists() and source.stat().st_mtime > compiled.stat().st_mtime):
        with compiled.open("rb") as file:
            return gettext.GNUTranslations(file)
    return gettext.GNUTranslations(BytesIO(_compiled(source)))


def _compiled(source: Path) -> bytes:
    """Compile a catalogue in memory: a checkout that was not installed has sources only, or newer ones."""
    try:
        from babel.messages.mofile import write_mo
        from babel.messages.pofile import read_po
    except ImportError:
        raise UsageError(f"the translations {source.stem} are not built", "pip install Babel, or perfkit") from None
    compiled = BytesIO()
    with source.open("rb") as file:
        write_mo(compiled, read_po(file, locale=source.stem, charset="utf-8"))
    compiled.seek(0)
    return compiled.read()
