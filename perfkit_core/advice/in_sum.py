"""What does all advice of a recording come to, and what is not known? In sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from perfkit_core.advice import wording
from perfkit_core.advice.model import Advices, Identity
from perfkit_core.advice.sentences import after, expected, sentence
from perfkit_core.report.headline import duration

_RULES: Final = 4
"""Rules that are named for one reason; the machine formats have all."""


def _which(found: Advices) -> str:
    """``Both``, or how many of how many."""
    count, savings = len(found.together), sum(one.prediction.saving_ns is not None for one in found.advice)
    if count == savings:
        return "Both" if count == 2 else f"All {count}"
    return f"The {count} that can be combined"


def replayed(identity: Identity, of: str) -> str:
    """How well the unchanged recording was repeated. ``of``: what was compared, "step" or "recording"."""
    if identity.error is None or identity.worst is None:
        return "Nothing was replayed: the recording holds no events of a host."
    text = f"Replayed unchanged, the recording repeats itself with an error of {identity.error:.2%}"
    if of == "step":
        text += f" (median of {identity.steps} step{'s' * (identity.steps != 1)}; worst {identity.worst:.2%})"
    if identity.unexplained is not None:
        text += f". {identity.unexplained:.1%} of the device's work starts later than anything recorded explains"
    return f"{text}."


def together(found: Advices, of: str) -> Iterator[str]:
    """What all advice saves that does not exclude each other."""
    if found.combined is None or len(found.together) < 2:
        return
    first, second = expected(found.combined, of)
    yield f"{_which(found)}, replayed at once: {first[:1].lower()}{first[1:]}. {second}."


def gains(found: Advices) -> Iterator[str]:
    """What is no advice by itself, and becomes worth it once other advice is followed."""
    for one in found.without_saving:
        if one.id in found.after:
            yield f"Worth it afterwards: {one.id} ({one.title}) {after(one, found)}."


def without_saving(found: Advices) -> Iterator[str]:
    """What was found, and is no advice."""
    none, little = [], []
    for one in found.without_saving:
        saving = one.prediction.saving_ns or 0
        if one.id not in found.after:
            little.append(f"{one.id} ({duration(saving)})") if saving > 0 else none.append(one.id)
    if none:
        yield f"Looked at, saves nothing: {', '.join(none)}."
    if little:
        yield f"Looked at, saves too little to read on: {', '.join(little)}."


def not_evaluable(reasons: Mapping[str, str], every: bool = False) -> Iterator[str]:
    """The rules that could not be evaluated, a sentence a reason. What would have to be recorded stands behind the
    colon of a reason: the machine formats have it, and so has ``--rule``. ``every``: name all rules."""
    by_reason: dict[str, list[str]] = {}
    for rule, why in reasons.items():
        by_reason.setdefault(why if len(reasons) == 1 else why.partition(": ")[0], []).append(rule)
    if len(reasons) == 1:
        yield from (f"Cannot be evaluated here: {rule} ({why})." for why, (rule,) in by_reason.items())
    elif reasons:
        most = len(reasons) if every else _RULES
        cut = any(len(rules) > most for rules in by_reason.values())
        more = "; --format json names all" if cut else ""
        yield f"{len(reasons)} rules cannot be evaluated here. What to record: perfkit advise SOURCE --rule ID{more}."
        yield from (f"{sentence(why)[:-1]}: {wording.several(rules, most)}." for why, rules in by_reason.items())
