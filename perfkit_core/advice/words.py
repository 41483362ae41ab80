"""How is a number told to people? By the unit that ends its name: ``_ns``, ``_bytes``, ``_ratio``, ``_factor``, …"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from perfkit_core.advice import wording
from perfkit_core.language import Message, mark, render, say
from perfkit_core.language.units import SHARES, SIZES, TIMES, format_count, format_range
from perfkit_core.replay.quantity import Number, Quantity

_SHOWN: Final = 8
"""Of a list; the machine formats have all."""
_SUFFIXES: Final = ("_ns", "_bytes", "_ratio", "_factor", "_left")
_SHARES: Final = ("_ratio", "_left")
_RATE: Final = "_per_ns"
_KINDS: Final = {"_ns": mark(", time"), "_bytes": mark(", size"), "_factor": mark(", factor")}
_ABBREVIATIONS: Final = {"cpu": "CPU", "gpu": "GPU", "id": "ID"}


def name(text: str) -> str:
    """``proposed_workers`` → ``proposed workers``, ``loader_ratio`` → ``loader, share``: units are said with the
    value."""
    unit = "" if text.endswith(_RATE) else _unit(text)
    stem = text.removesuffix(unit)
    said = " ".join(_ABBREVIATIONS.get(word, word) for word in stem.split("_"))
    if not text.endswith(_SHARES):
        return said
    return say("{what}, left", what=said) if text.endswith("_left") else say("{what}, share", what=said)


def names(texts: Sequence[str]) -> list[str]:
    """Each with its unit in a word where another one has the same name without."""
    said = [name(text) for text in texts]
    return [
        f"{one}{say(_KINDS.get(_unit(text), ''))}" if said.count(one) > 1 else one
        for one, text in zip(said, texts, strict=True)
    ]


def _unit(text: str) -> str:
    return next((end for end in _SUFFIXES if text.endswith(end) and text != end), "")


def value(named: str, what: Any) -> str:
    """A number, an uncertain number, a text or several of them, in the unit that ``named`` ends with."""
    if what is None:
        return say("not known")
    if isinstance(what, bool):
        return say("yes") if what else say("no")
    if isinstance(what, Message):
        return render(what)
    if isinstance(what, Quantity):
        return likely(named, what)
    if isinstance(what, (int, float)):
        return between(named, what, what)
    if isinstance(what, Mapping):
        return say(", ").join(f"{name(str(key))} {value(str(key), one)}" for key, one in what.items())
    return some([value(named, one) for one in what]) if isinstance(what, (list, tuple)) else str(what)


def some(texts: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    return wording.several(texts, _SHOWN)


def likely(named: str, number: Number) -> str:
    """``0.1 to 2 ms, likely 0.5 ms``; a number that is known alone."""
    text = span(named, number)
    if not isinstance(number, Quantity) or number.low == number.high:
        return text
    return say("{interval}, likely {value}", interval=text, value=between(named, number.mid, number.mid))


def span(named: str, number: Number) -> str:
    """``0.1–2 ms``: from the least to the most that it is taken for."""
    if not isinstance(number, Quantity):
        return between(named, number, number)
    return between(named, min(number.low, number.high), max(number.low, number.high))


def between(named: str, low: float, high: float) -> str:
    """Two ends in the unit that suits the higher one; one where both read alike."""
    if named.endswith(_RATE):
        return _ends(low, high, "")
    if named.endswith("_ns"):
        return format_range(low, high, TIMES)
    if named.endswith(_SHARES):
        return format_range(low, high, SHARES)
    if "bytes" in named.split("_"):
        return format_range(low, high, SIZES)
    return _ends(low, high, " ×" if named.endswith("factor") else "")


def _ends(low: float, high: float, unit: str) -> str:
    ends = list(dict.fromkeys((format_count(low), format_count(high))))
    dash = say(" to ") if low < 0 else "–"
    return f"{dash.join(ends)}{unit}"
