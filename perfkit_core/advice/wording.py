"""Numbers in sentences of advice."""

from __future__ import annotations

from collections.abc import Sequence

from perfkit_core.language import say
from perfkit_core.language.units import format_bytes


def size(count: float) -> str:
    """A number of bytes."""
    return format_bytes(count)


def several(names: Sequence[str], most: int = 3) -> str:
    """Some names, and how many more there are."""
    rest = len(names) - most
    first = say(", ").join(names[:most])
    return say("{names} and {count} more", names=first, count=rest) if rest > 0 else first


def both(names: Sequence[str]) -> str:
    """All of some names: ``a, b and c``."""
    first, last = say(", ").join(names[:-1]), "".join(names[-1:])
    return say("{names} and {last}", names=first, last=last) if first and last else first or last


def each(has_steps: bool) -> str:
    """What numbers of a recording count for."""
    return say("a step") if has_steps else say("of the whole recording")
