"""What was measured before of an advice, or of another finding of its rule? From the ledger, in a sentence."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from perfkit_core.advice.model import Advice
from perfkit_core.advice.sentences import percent
from perfkit_core.verification.ledger import Record

_WORDS: Final = {"verified": "verified", "refuted": "refuted", "abstained": "could not tell"}

_COMMAND: Final = 60
"""Characters of a command; the ledger has all of it."""


def lines(advice: Advice, records: Sequence[Record]) -> Iterator[str]:
    """The last measurement of this advice, else of another one of the same rule and framework; nothing without any. The
    command is said with it: another training may have advice of the same id."""
    own, others = of_advice(advice, records), of_rule(advice, records)
    if own:
        yield f"Measured {_said(own[-1])}{_among(own)}"
    elif others:
        yield f"Measured elsewhere: {others[-1].advice} {_said(others[-1])}{_among(others)}"


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
    where = f" on {one.cpu}{_cpus(len(one.cpus or ()))}" if one.cpu else ""
    return f"{one.date[:10]}{where} by {textwrap.shorten(one.change, _COMMAND)}: {_WORDS[one.outcome]}{_savings(one)}"


def _cpus(count: int) -> str:
    return f" ({count} CPU{'s' * (count != 1)})" if count else ""


def _savings(one: Record) -> str:
    """Measured and predicted, as shares of the step."""
    if one.saving_ratio is None:
        return ""
    saved = f"saved {percent(one.saving_ratio)}" if one.saving_ratio >= 0 else f"cost {percent(-one.saving_ratio)}"
    if None not in (one.saving_low_ratio, one.saving_high_ratio):
        saved += f" ({percent(one.saving_low_ratio or 0)} to {percent(one.saving_high_ratio or 0)})"
    predicted = one.predicted_saving_ratio
    return f"; {saved}{'' if predicted is None else f', {percent(predicted)} was predicted'}"


def _among(found: Sequence[Record]) -> str:
    """What became of all of them, where there are several."""
    if len(found) < 2:
        return ""
    counts = Counter(_WORDS[one.outcome] for one in found)
    return f"; the last of {len(found)} measurements: {', '.join(f'{n} {word}' for word, n in counts.items())}"
