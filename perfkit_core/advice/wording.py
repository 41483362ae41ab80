"""Numbers in sentences of advice."""

from __future__ import annotations

from collections.abc import Sequence


def ms(dur_ns: float) -> str:
    """A time in ms, with as many digits as it needs to be told from 0."""
    return f"{dur_ns / 1e6:.1f}" if abs(dur_ns) >= 1e6 else f"{dur_ns / 1e6:.3f}"


def size(count: float) -> str:
    """A number of bytes."""
    for unit, bytes_each in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= bytes_each:
            return f"{count / bytes_each:.1f} {unit}"
    return f"{count:.0f} bytes"


def several(names: Sequence[str], most: int = 3) -> str:
    """Some names, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def both(names: Sequence[str]) -> str:
    """All of some names: ``a, b and c``."""
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def each(has_steps: bool) -> str:
    """What numbers of a recording count for."""
    return "a step" if has_steps else "of the whole recording"
