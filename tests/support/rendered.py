"""Messages as the sentences that people are shown."""

from __future__ import annotations

from collections.abc import Iterable

from perfkit_core.base.language.messages import Text, render


def rendered(texts: Iterable[Text]) -> tuple[str, ...]:
    """Return the sentences of messages."""
    return tuple(map(render, texts))
