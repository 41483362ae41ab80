"""What does all advice of a recording come to, and what is not known? In sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from perfkit_core.advice import wording
from perfkit_core.advice.model import Advices, Identity
from perfkit_core.advice.sentences import after, expected, sentence
from perfkit_core.language import in_english, say
from perfkit_core.language.units import format_duration, format_ratio

_RULES: Final = 4
"""Rules that are named for one reason; the machine formats have all."""


def _which(found: Advices) -> str:
    """``Both``, or how many of how many."""
    count, savings = len(found.together), sum(one.prediction.saving_ns is not None for one in found.advice)
    if count == savings:
        return say("Both") if count == 2 else say("All {count}", count=count)
    return say("The {count} that can be combined", count=count)


def replayed(identity: Identity, of: str) -> str:
    """How well the unchanged recording was repeated. ``of``: what was compared, "step" or "recording"."""
    if identity.error is None or identity.worst is None:
        return say("Nothing was replayed: the recording holds no events of a host.")
    error = format_ratio(identity.error)
    text = say("Replayed unchanged, the recording repeats itself with an error of {error}", error=error)
    if of == "step" and identity.steps == 1:
        text += say(" (median of 1 step; worst {worst})", worst=format_ratio(identity.worst))
    elif of == "step":
        text += say(
            " (median of {count} steps; worst {worst})", count=identity.steps, worst=format_ratio(identity.worst)
        )
    if identity.unexplained is not None:
        more = in_english(". {share} of the device's work starts later than anything recorded explains")
        text += say(more, share=format_ratio(identity.unexplained))
    if identity.untold_waits:
        more = in_english(
            ". For {count} times that a stream is told to wait nothing recorded says what it waits for: where several "
            "streams work at once, a saving may be smaller than said, and a cost larger"
        )
        text += say(more, count=identity.untold_waits)
    return say("{sentence}.", sentence=text)


def together(found: Advices, of: str) -> Iterator[str]:
    """What all advice saves that does not exclude each other."""
    if found.combined is None or len(found.together) < 2:
        return
    first, second = expected(found.combined, of)
    text = in_english("{which}, replayed at once: {first}. {second}.")
    yield say(text, which=_which(found), first=f"{first[:1].lower()}{first[1:]}", second=second)


def gains(found: Advices) -> Iterator[str]:
    """What is no advice by itself, and becomes worth it once other advice is followed."""
    for one in found.without_saving:
        if one.id in found.after:
            yield say(
                "Worth it afterwards: {id} ({title}) {after}.", id=one.id, title=one.title, after=after(one, found)
            )


def without_saving(found: Advices) -> Iterator[str]:
    """What was found, and is no advice."""
    none, little = [], []
    for one in found.without_saving:
        saving = one.prediction.saving_ns or 0
        if one.id not in found.after:
            little.append(f"{one.id} ({format_duration(saving)})") if saving > 0 else none.append(one.id)
    if none:
        yield say("Looked at, saves nothing: {ids}.", ids=say(", ").join(none))
    if little:
        yield say("Looked at, saves too little to read on: {ids}.", ids=say(", ").join(little))


def not_evaluable(found: Advices, every: bool = False) -> Iterator[str]:
    """The rules that could not be evaluated, a sentence a reason. What would have to be recorded stands behind the
    colon of a reason: the machine formats have it, and so has ``--rule``. ``every``: name all rules."""
    reasons = found.not_evaluable
    by_reason: dict[str, list[str]] = {}
    for rule, why in reasons.items():
        by_reason.setdefault(why if len(reasons) == 1 else wording.parted(why)[0], []).append(rule)
    if len(reasons) == 1:
        for why, (rule,) in by_reason.items():
            yield say("Cannot be evaluated here: {rule} ({why}).", rule=rule, why=why)
    elif reasons:
        most = len(reasons) if every else _RULES
        cut = any(len(rules) > most for rules in by_reason.values())
        text = in_english(
            "{count} rules cannot be evaluated here. What to record: perfkit advise {source} --rule ID{more}."
        )
        more = say("; --format json names all") if cut else ""
        yield say(text, count=len(reasons), source=found.source, more=more)
        for why, rules in by_reason.items():
            yield say("{reason}: {rules}.", reason=sentence(why)[:-1], rules=wording.several(rules, most))
