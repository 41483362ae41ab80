"""The one sentence about all advice that a hurried reader needs; where something was asked, a sentence an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from perfkit_core.advice.model import Advices, Prediction
from perfkit_core.advice.sentences import sentence
from perfkit_core.language import in_english, say
from perfkit_core.language.units import format_duration

NOTHING: Final = in_english("nothing was found that would save time")


def of(found: Advices, whole: str) -> Iterator[str]:
    """``whole``: what the times are of, "step" or "recording"."""
    what = say("a step") if whole == "step" else say("the recording")
    if found.asked:
        for question, one in zip(found.asked, found.advice, strict=True):
            yield say("{question}: {answer}", question=question, answer=_answer(what, one.prediction))
        return
    savings = [one.prediction for one in found.advice if one.prediction.saving_ns is not None]
    if not savings:
        if not found.advice and not found.without_saving and len(found.not_evaluable) == 1:
            yield say("What was asked cannot be told from this recording.")
            return
        yield sentence(f"{say(NOTHING)}{_notes(len(found.advice))}")
        return
    best = _best(found, savings)
    answer = _answer(what, best, _with(found, best, len(savings)))
    yield say("{question}: {answer}", question=_count(len(savings)), answer=answer)


def _notes(count: int) -> str:
    if count < 2:
        return say("; one thing is worth knowing") if count else ""
    return say("; some things are worth knowing")


def _count(changes: int) -> str:
    return say("One change") if changes == 1 else say("{count} changes", count=changes)


def _best(found: Advices, savings: list[Prediction]) -> Prediction:
    """The combined prediction, unless one that is no replay saves more by itself."""
    together = found.combined
    alone = savings[0].saving_ns or 0
    return together if together is not None and (together.saving_ns or 0) >= alone else savings[0]


def _with(found: Advices, best: Prediction, changes: int) -> str:
    """Which of the changes the time is with."""
    if changes == 1:
        return ""
    if len(found.together) < 2 or best is not found.combined:
        return say(" with the first")
    if len(found.together) == changes:
        return say(" with both") if changes == 2 else say(" with all of them")
    return say(" with the {count} that can be combined", count=len(found.together))


def _answer(what: str, p: Prediction, which: str = "") -> str:
    """Now and afterwards, with the interval."""
    if p.p50_ns is None:
        return say("what {what} would take cannot be told from this recording.", what=what)
    words = {
        "what": what, "now": format_duration(p.base_ns), "then": format_duration(p.p50_ns),
        "low": format_duration(p.p10_ns or 0), "high": format_duration(p.p90_ns or 0),
    }  # fmt: skip
    if (p.saving_ns or 0) <= 0:
        return say("{what} takes {now} now, and would take {then} ({low} to {high}): it does not pay.", **words)
    return say("{what} takes {now} now, and should take {then} ({low} to {high}){which}.", which=which, **words)
