"""What was measured before of an advice, or of another finding of its rule? From the ledger, in a sentence."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from perfkit_core.advice.model import Advice
from perfkit_core.language import mark, say
from perfkit_core.language.units import format_ratio
from perfkit_core.verification.ledger import Record

_WORDS: Final = {
    "verified": mark("verified"),
    "refuted": mark("refuted"),
    "abstained": mark("could not tell"),
}

_COMMAND: Final = 60
"""Characters of a command; the ledger has all of it."""


def lines(advice: Advice, records: Sequence[Record]) -> Iterator[str]:
    """The last measurement of this advice, else of another one of the same rule and framework; nothing without any. The
    command is said with it: another training may have advice of the same id."""
    own, others = of_advice(advice, records), of_rule(advice, records)
    if own:
        yield say("Measured {what}", what=f"{_said(own[-1])}{_among(own)}")
    elif others:
        told = f"{others[-1].advice} {_said(others[-1])}{_among(others)}"
        yield say("Measured elsewhere: {what}", what=told)


def of_advice(advice: Advice, records: Sequence[Record]) -> list[Record]:
    """The measurements of an advice, the oldest first."""
    return [one for one in records if one.outcome in _WORDS and one.advice == advice.id]


def of_rule(advice: Advice, records: Sequence[Record]) -> list[Record]:
    """The measurements of its rule in its framework, the oldest first. Records without a framework are of none."""
    return [
        one
        for one in records
        if one.outcome in _WORDS and one.rule == advice.rule and one.framework == advice.framework
    ]


def _said(one: Record) -> str:
    words = {
        "date": one.date[:10],
        "command": textwrap.shorten(one.change, _COMMAND),
        "outcome": f"{say(_WORDS[one.outcome])}{_savings(one)}",
    }
    if one.cpu:
        return say("{date} on {cpu} by {command}: {outcome}", cpu=f"{one.cpu}{_cpus(len(one.cpus or ()))}", **words)
    return say("{date} by {command}: {outcome}", **words)


def _cpus(count: int) -> str:
    if count < 2:
        return say(" (1 CPU)") if count else ""
    return say(" ({count} CPUs)", count=count)


def _savings(one: Record) -> str:
    """Measured and predicted, as shares of the step."""
    if one.saving_ratio is None:
        return ""
    saved = say("; cost {share}", share=format_ratio(-one.saving_ratio))
    if one.saving_ratio >= 0:
        saved = say("; saved {share}", share=format_ratio(one.saving_ratio))
    if None not in (one.saving_low_ratio, one.saving_high_ratio):
        low, high = format_ratio(one.saving_low_ratio or 0), format_ratio(one.saving_high_ratio or 0)
        saved += say(" ({low} to {high})", low=low, high=high)
    if one.predicted_saving_ratio is None:
        return saved
    return saved + say(", {share} was predicted", share=format_ratio(one.predicted_saving_ratio))


def _among(found: Sequence[Record]) -> str:
    """What became of all of them, where there are several."""
    if len(found) < 2:
        return ""
    counts = Counter(_WORDS[one.outcome] for one in found)
    told = say(", ").join(f"{count} {say(word)}" for word, count in counts.items())
    return say("; the last of {count} measurements: {outcomes}", count=len(found), outcomes=told)
