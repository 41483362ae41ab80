"""Parts of sentences that advice shares: a time as a part of the step, lists of names, counts.

How is a number told to people? By the unit that ends its name: ``_ns``, ``_bytes``, ``_ratio``, ``_factor``, …
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from perfkit_core.advice.facts import Facts
from perfkit_core.language.messages import Message, mark, message, render, say
from perfkit_core.language.units import SHARES, SIZES, TIMES, format_count, format_range
from perfkit_core.replay.quantity import Number, Quantity


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


def of_step(facts: Facts, spent_ns: float) -> Message:
    """Return ``18.4 ms of the 176 ms step``; a recording without steps counts as one."""
    if facts.has_steps:
        return message("{part:ns} of the {step:ns} step", part=spent_ns, step=facts.step_ns)
    return message("{part:ns} of the {recording:ns} recording", part=spent_ns, recording=facts.step_ns)


def of_busy(facts: Facts, spent_ns: float) -> Message:
    """Return ``18.4 ms of the 90 ms that the device works in a step``."""
    busy = facts.busy_ns
    if facts.has_steps:
        return message("{part:ns} of the {busy:ns} that the device works per step", part=spent_ns, busy=busy)
    return message("{part:ns} of the {busy:ns} that the device works in the recording", part=spent_ns, busy=busy)


def each_step(facts: Facts) -> Message:
    """Return ``per step``: what a count of the recording is divided by."""
    return message("per step") if facts.has_steps else message("in the recording")


def plural_of(count: float) -> int:
    """Return 1 where a count, which may be an average, is shown as 1, else 2: it chooses between two templates."""
    return 1 if f"{count:.3g}" == "1" else 2


def listed(names: Sequence[str], most: int = 3) -> Message:
    """Return the first names, and how many more there are."""
    rest = len(names) - most
    if rest > 0:
        return message("{names:list} and {rest:count} more", names=names[:most], rest=rest)
    return message("{names:and}", names=names)


def numbered_steps(numbers: Sequence[int]) -> Message:
    """Return ``step 3``, or ``steps 3, 5 and 2 more``."""
    names = listed([str(number) for number in numbers], 5)
    return message("step {number}", number=names) if len(numbers) == 1 else message("steps {numbers}", numbers=names)


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
    return several(texts, _SHOWN)


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
