"""Texts for people and their translations.

Texts are written in English where they are used. ``message`` and ``plural`` return a message, which is translated when
it is shown. ``say`` returns a sentence in the current language. ``mark`` marks a constant for translation. Errors of
the command line and the ids of views, columns and rules are not translated."""

from __future__ import annotations

from perfkit_core.base.language.messages import LANGUAGES, Message, Text, mark, message, plural, render, say, speaking

__all__ = ["LANGUAGES", "Message", "Text", "mark", "message", "plural", "render", "say", "speaking"]
