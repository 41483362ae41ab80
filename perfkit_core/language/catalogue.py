"""What does a text read in another language? Catalogues are gettext's ``.po`` files, one a language."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from io import BytesIO
from pathlib import PurePosixPath
from typing import Final

_WORD: Final = re.compile(r"\{(\w+)[^{}]*\}")
_MESSAGE: Final = "message"
KEPT: Final = "kept"
"""The place in a catalogue of texts that are kept filled in, and retold."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """``texts``: English → translated. ``said_by``: which texts a file says, by the file's name."""

    texts: Mapping[str, str]
    said_by: Mapping[str, tuple[str, ...]]
    _patterns: list[tuple[re.Pattern[str], str]] = field(default_factory=list)

    def retold(self, text: str) -> str:
        """A text whose words were filled in before: the translation of the template that it fits."""
        if text in self.texts or not self.texts:
            return self.texts.get(text, text)
        if not self._patterns:  # most specific first: the one with the most letters of its own
            kept = (one for one in self.said_by.get(KEPT, ()) if _WORD.search(one))
            filled = sorted(kept, key=lambda one: -len(_WORD.sub("", one)))
            self._patterns.extend((_pattern(one), self.texts[one]) for one in filled)
        for pattern, translated in self._patterns:
            if found := pattern.fullmatch(text):
                return _WORD.sub(partial(self._word, found), translated)
        return text

    def _word(self, found: re.Match[str], word: re.Match[str]) -> str:
        """What stood for a word; a whole message in a message is retold, too."""
        return self.retold(found[word[1]]) if word[1] == _MESSAGE else found[word[1]]


def _pattern(template: str) -> re.Pattern[str]:
    """What a template may have become. A word that it has twice was filled alike."""
    parts, at, known = [], 0, set[str]()
    for word in _WORD.finditer(template):
        parts += [
            re.escape(template[at : word.start()]),
            f"(?P={word[1]})" if word[1] in known else f"(?P<{word[1]}>.+?)",
        ]
        known.add(word[1])
        at = word.end()
    return re.compile("".join((*parts, re.escape(template[at:]))), re.DOTALL)


@functools.cache
def read(language: str) -> Catalogue:
    """The catalogue of a language; texts without translation are left out."""
    from babel.messages.pofile import read_po

    data = (files("perfkit_core.language") / f"{language}.po").read_bytes()
    texts: dict[str, str] = {}
    said: defaultdict[str, list[str]] = defaultdict(list)
    for message in read_po(BytesIO(data)):
        if isinstance(message.id, str) and message.id and isinstance(message.string, str) and message.string:
            texts[message.id] = message.string
            for name in dict.fromkeys(PurePosixPath(path).name for path, _ in message.locations):
                said[name].append(message.id)
    return Catalogue(texts, {name: tuple(found) for name, found in said.items()})
