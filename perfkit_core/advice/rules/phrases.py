"""Counts, times and parts of a step in the sentences of rules: one way to say them."""

from __future__ import annotations

from perfkit_core.advice.facts import Facts


def number(count: float) -> str:
    """``3``, ``2.5``, ``1,240``: three digits, of large numbers the whole part."""
    return f"{count:,.0f}" if abs(count) >= 100 or count == round(count) else f"{count:.3g}"


def counted(count: float, one: str, more: str | None = None) -> str:
    """``1 copy``, ``2.5 copies``: a number of things, whose plural is ``more`` (None: with an s)."""
    said = number(count)
    return f"{said} {one if said == '1' else more or f'{one}s'}"


def verb(count: float, one: str, more: str) -> str:
    """The form of a verb that goes with a count: ``1 copy holds``, ``2 copies hold``."""
    return one if number(count) == "1" else more


def times(count: float) -> str:
    """``once``, ``twice``, ``3 times``."""
    said = number(count)
    return {"1": "once", "2": "twice"}.get(said, f"{said} times")


def millis(dur_ns: float) -> str:
    """A time in ms, without the unit, with three digits or all of its whole part: ``0.0432``, ``18.4``, ``1,686``."""
    ms = dur_ns / 1e6
    return f"{ms:,.0f}" if abs(ms) >= 100 else f"{ms:.3g}"


def part_of_step(facts: Facts, part_ns: float) -> str:
    """``18.4 of the 176 ms of a step``; without steps the whole recording counts as one."""
    return f"{millis(part_ns)} of the {millis(facts.step_ns)} ms of {period(facts)}"


def part(facts: Facts, part_ns: float) -> str:
    """``18.4 of 176 ms``, where the sentence says of what already."""
    return f"{millis(part_ns)} of {millis(facts.step_ns)} ms"


def period(facts: Facts) -> str:
    """What numbers count for."""
    return "a step" if facts.has_steps else "the recording"


def each_period(facts: Facts) -> str:
    """As an adverb behind a count: ``3 copies a step``."""
    return "a step" if facts.has_steps else "in the recording"
