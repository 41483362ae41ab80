"""What is a column called? ``self_cpu_ns`` → ``Self CPU``, ``self_cpu_bytes`` → ``Self CPU memory``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from perfkit_core.language import mark, say
from perfkit_core.renderers.families import OPERATIONS, SHARES, SIZES, family, stem

_UPPER: Final = {word: word.upper() for word in ("cpu", "gpu", "npu", "id", "pid", "tid", "utc")}
_WORDS: Final = _UPPER | {"dur": "duration", "flops": "FLOPs", "occurrence": "operators"}
_MESSAGES: Final = ("message_bytes",)
"""Sizes of what is sent, and no memory."""
_PLACES: Final = ("cpu", "gpu", "npu", "device")
_SORTS: Final = {
    "ns": mark("time"),
    "bytes": mark("memory"),
    "bytes_per_s": mark("bandwidth"),
    "ratio": "%",
}


def label(name: str) -> str:
    """Heading of a column without its unit. A place alone would be read as its time, so its sizes say ``memory``;
    FLOPs are called so."""
    found = family(name)
    words = name if found is OPERATIONS else stem(name)
    if found and not words:
        return found.bare
    if found is SIZES and words.split("_")[-1] in _PLACES:
        words += "_memory"
    text = " ".join(_WORDS.get(word, word) for word in words.split("_"))
    return text[:1].upper() + text[1:]


def without_units(names: Sequence[str], others: Iterable[str]) -> list[str]:
    """Headings of ``names`` for a sentence in the language of the moment, each once.

    One that a column of ``others`` has too says what it counts; so does a share, unless that is of one of ``names``.
    """
    taken = {label(name) for name in others}
    whole = {label(name) for name in names if family(name) is not SHARES}

    def clear(name: str) -> bool:
        return label(name) in whole if family(name) is SHARES else label(name) not in taken

    return list(dict.fromkeys(_in_words(name) if clear(name) else _counted(name) for name in names))


def _counted(name: str) -> str:
    found = family(name)
    if found is not None and name == found.suffix:
        return say(found.bare)
    text = say(label(name))
    return say("{column} ({what})", column=text, what=say(_SORTS[found.suffix])) if found else text


def _in_words(name: str) -> str:
    """``Allocated`` needs its unit to be understood, ``Allocated memory`` does not."""
    text = label(name)
    if name in _MESSAGES:
        return say("{column} size", column=say(text))
    alone = name.endswith("_bytes") and not text.endswith(" memory")
    return say("{column} memory", column=say(text)) if alone else say(text)
