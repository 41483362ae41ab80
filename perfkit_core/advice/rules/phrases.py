"""Counts, times and parts of a step in the sentences of rules: one way to say them."""

from __future__ import annotations

from collections.abc import Sequence

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.wording import several
from perfkit_core.language import say
from perfkit_core.language.units import TIME_UNITS, format_count, format_in


def number(count: float) -> str:
    """``3``, ``2.5``, ``1,240``: three digits, of large numbers the whole part."""
    return format_count(count)


def counted(count: float, one: str, more: str | None = None) -> str:
    """``1 copy``, ``2.5 copies``: a number of things, said; their plural is ``more`` (None: with an s)."""
    said = number(count)
    return say("{count} {things}", count=said, things=say(one if said == "1" else more or f"{one}s"))


def verb(count: float, one: str, more: str) -> str:
    """The English form of a verb that goes with a count: ``1 copy holds``, ``2 copies hold``. It fills a word that is
    called ``verb``, which other languages leave out."""
    return one if number(count) == "1" else more


def times(count: float) -> str:
    """``once``, ``twice``, ``3 times``."""
    said = number(count)
    if said == "1":
        return say("once")
    return say("twice") if said == "2" else say("{count} times", count=said)


def numbered(numbers: Sequence[int]) -> str:
    """``step 3``, ``steps 3, 5 and 2 more``."""
    listed = several([str(one) for one in numbers], 5)
    return say("step {number}", number=listed) if len(numbers) == 1 else say("steps {numbers}", numbers=listed)


def millis(dur_ns: float) -> str:
    """A time in ms, without the unit, with three digits or all of its whole part: ``0.0432``, ``18.4``, ``1,686``."""
    return format_in(dur_ns, TIME_UNITS["ms"])


def part_of_step(facts: Facts, part_ns: float) -> str:
    """``18.4 of the 176 ms of a step``; without steps the whole recording counts as one."""
    whole, one = millis(facts.step_ns), period(facts)
    return say("{part} of the {whole} ms of {period}", part=millis(part_ns), whole=whole, period=one)


def part(facts: Facts, part_ns: float) -> str:
    """``18.4 of 176 ms``, where the sentence says of what already."""
    return say("{part} of {whole} ms", part=millis(part_ns), whole=millis(facts.step_ns))


def period(facts: Facts) -> str:
    """What numbers count for."""
    return say("a step") if facts.has_steps else say("the recording")


def each_period(facts: Facts) -> str:
    """As an adverb behind a count: ``3 copies a step``."""
    return say("a step") if facts.has_steps else say("in the recording")
