"""What does all advice of a recording come to, and what is not known? In sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from perfkit_core.advice import wording
from perfkit_core.advice.model import Advices, Identity
from perfkit_core.advice.sentences import after, capitalized, expected, now_and_then
from perfkit_core.language import Message, Text, mark, message, plural

_RULES: Final = 4
"""Rules that are named for one reason; the machine formats have all."""


def _which(found: Advices) -> Message:
    """``Both``, or how many of how many."""
    count, savings = len(found.together), sum(one.prediction.saving_ns is not None for one in found.advice)
    if count == savings:
        return message("Both") if count == 2 else message("All {count}", count=count)
    return message("The {count} that can be combined", count=count)


def replayed(identity: Identity, of: str) -> Message:
    """How well the unchanged recording was repeated. ``of``: what was compared, "step" or "recording"."""
    if identity.error is None or identity.worst is None:
        return message("Nothing was replayed: the recording holds no events of a host.")
    steps = unexplained = waits = None
    if of == "step":
        steps = plural(
            " (median of 1 step; worst {worst:ratio})",
            " (median of {n} steps; worst {worst:ratio})",
            identity.steps,
            worst=identity.worst,
        )
    if identity.unexplained is not None:
        unexplained = message(
            ". {share:ratio} of the device's work starts later than anything recorded explains",
            share=identity.unexplained,
        )
    if identity.untold_waits:
        waits = message(
            ". For {count} times that a stream is told to wait nothing recorded says what it waits for: where several "
            "streams work at once, a saving may be smaller than said, and a cost larger",
            count=identity.untold_waits,
        )
    return message(
        "Replayed unchanged, the recording repeats itself with an error of {error:ratio}{steps}{unexplained}{waits}.",
        error=identity.error,
        steps=steps,
        unexplained=unexplained,
        waits=waits,
    )


def together(found: Advices, of: str) -> Iterator[Message]:
    """What all advice saves that does not exclude each other."""
    if found.combined is None or len(found.together) < 2:
        return
    first, *rest = expected(found.combined, of)
    if rest:
        first = now_and_then(found.combined, of, within=True)
        text = mark("{which}, replayed at once: {first}. {second}.")
        yield message(text, which=_which(found), first=first, second=rest[0])


def gains(found: Advices) -> Iterator[Message]:
    """What is no advice by itself, and becomes worth it once other advice is followed."""
    for one in found.without_saving:
        if one.id in found.after:
            yield message(
                "Worth it afterwards: {id} ({title}) {after}.", id=one.id, title=one.title, after=after(one, found)
            )


def without_saving(found: Advices) -> Iterator[Message]:
    """What was found, and is no advice."""
    none: list[str] = []
    little: list[Message] = []
    for one in found.without_saving:
        saving = one.prediction.saving_ns or 0
        if one.id not in found.after:
            if saving > 0:
                little.append(message("{id} ({saving:ns})", id=one.id, saving=saving))
            else:
                none.append(one.id)
    if none:
        yield message("Looked at, saves nothing: {ids:list}.", ids=none)
    if little:
        yield message("Looked at, saves too little to read on: {ids:list}.", ids=little)


def not_evaluable(found: Advices, every: bool = False) -> Iterator[Message]:
    """The rules that could not be evaluated, a sentence a reason. What to record is left to the machine formats and to
    ``--rule``. ``every``: name all rules."""
    reasons = found.not_evaluable
    if len(reasons) == 1:
        for rule, why in reasons.items():
            yield message("Cannot be evaluated here: {rule} ({why}).", rule=rule, why=why.text)
    elif reasons:
        by_reason: dict[Text, list[str]] = {}
        for rule, why in reasons.items():
            by_reason.setdefault(why.reason, []).append(rule)
        most = len(reasons) if every else _RULES
        cut = any(len(rules) > most for rules in by_reason.values())
        text = mark("{count} rules cannot be evaluated here. What to record: perfkit advise {source} --rule ID{more}.")
        more = message("; --format json names all") if cut else None
        yield message(text, count=len(reasons), source=found.source, more=more)
        for reason, rules in by_reason.items():
            yield message("{reason}: {rules}.", reason=capitalized(reason), rules=wording.several(rules, most))
