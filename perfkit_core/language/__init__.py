"""Texts that people read: messages that become sentences when they are shown, and their translations.

Texts are written in English where they are used. ``message`` and ``plural`` build a message, which is kept and shown
later; ``say`` returns a sentence in the language of the moment at once; ``mark`` marks a constant that is given to one
of them. Names of views, columns and rules in commands and machine formats, and errors of the command line, stay
English.
"""

from __future__ import annotations

from perfkit_core.language.current import LANGUAGES, language, speaking, texts_of
from perfkit_core.language.messages import (
    Message,
    Sentence,
    Text,
    english,
    mark,
    message,
    plural,
    render,
    say,
)

__all__ = [
    "LANGUAGES",
    "Message",
    "Sentence",
    "Text",
    "english",
    "language",
    "mark",
    "message",
    "plural",
    "render",
    "say",
    "speaking",
    "texts_of",
]
