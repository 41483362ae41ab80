"""Texts that people read: messages that become sentences when they are shown, and their translations.

Texts are written in English where they are used. ``message`` and ``plural`` build a message, which is kept and shown
later; ``say`` returns a sentence in the language of the moment; ``mark`` marks a constant that is passed to one of them
later. Names of views, columns and rules in commands and machine formats, and errors of the command line, stay English.
"""

from __future__ import annotations

from perfkit_core.language.messages import LANGUAGES, Message, Text, mark, message, plural, render, say, speaking

__all__ = ["LANGUAGES", "Message", "Text", "mark", "message", "plural", "render", "say", "speaking"]
