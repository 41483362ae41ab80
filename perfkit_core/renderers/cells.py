"""Cells of text as people read them: words that are said, names that cannot steer what shows them."""

from __future__ import annotations

from typing import Any, Final

from perfkit_core.language import Text, render, say
from perfkit_core.language.columns import worded
from perfkit_core.table_columns import Column

MISSING: Final = "-"


def text(value: Any, column: Column | None = None) -> str:
    """A cell that is no number. The words that a column is made of are said, names are as they are."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return say("yes") if value else say("no")
    return visible(worded(value if isinstance(value, str) else render(value), column))


def visible(text: Text) -> str:
    """Return the text, a message as its sentence, with control, bidirectional and line-separating characters escaped.

    A name must not steer a terminal or a page."""
    shown = render(text)
    return shown if shown.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in shown)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
