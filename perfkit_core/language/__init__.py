"""Texts for people: messages that are formatted when they are shown, and their translations. Texts are written in
English where they are used. ``message`` and ``plural`` build a message to keep; ``say`` returns a sentence in the
current language; ``mark`` marks a constant for translation. Ids of views, columns and rules, and errors of the command
line, stay English."""

from __future__ import annotations

from perfkit_core.language.messages import LANGUAGES, Message, Text, mark, message, plural, render, say, speaking

__all__ = ["LANGUAGES", "Message", "Text", "mark", "message", "plural", "render", "say", "speaking"]
