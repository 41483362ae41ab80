"""The one sentence about all advice that a hurried reader needs; where something was asked, a sentence an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from perfkit_core.advice.model import Advices, Prediction
from perfkit_core.advice.sentences import sentence
from perfkit_core.language import Message, Text, mark, message, plural

NOTHING: Final = mark("nothing was found that would save time")


def of(found: Advices, whole: str) -> Iterator[Text]:
    """``whole``: what the times are of, "step" or "recording"."""
    what = message("a step") if whole == "step" else message("the recording")
    if found.asked:
        for question, one in zip(found.asked, found.advice, strict=True):
            yield message("{question}: {answer}", question=question, answer=_answer(what, one.prediction))
        return
    savings = [one.prediction for one in found.advice if one.prediction.saving_ns is not None]
    if not savings:
        if not found.advice and not found.without_saving and len(found.not_evaluable) == 1:
            yield message("What was asked cannot be told from this recording.")
            return
        yield sentence(message("{nothing}{notes}", nothing=message(NOTHING), notes=_notes(len(found.advice))))
        return
    best = _best(found, savings)
    answer = _answer(what, best, _with(found, best, len(savings)))
    yield message("{question}: {answer}", question=_count(len(savings)), answer=answer)


def _notes(count: int) -> Message | None:
    if count < 2:
        return message("; one thing is worth knowing") if count else None
    return message("; some things are worth knowing")


def _count(changes: int) -> Message:
    return plural("One change", "{n} changes", changes)


def _best(found: Advices, savings: list[Prediction]) -> Prediction:
    """The combined prediction, unless one that is no replay saves more by itself."""
    together = found.combined
    alone = savings[0].saving_ns or 0
    return together if together is not None and (together.saving_ns or 0) >= alone else savings[0]


def _with(found: Advices, best: Prediction, changes: int) -> Message | None:
    """Which of the changes the time is with."""
    if changes == 1:
        return None
    if len(found.together) < 2 or best is not found.combined:
        return message(" with the first")
    if len(found.together) == changes:
        return message(" with both") if changes == 2 else message(" with all of them")
    return message(" with the {count} that can be combined", count=len(found.together))


def _answer(what: Message, p: Prediction, which: Message | None = None) -> Message:
    """Now and afterwards, with the interval."""
    if p.p50_ns is None:
        return message("what {what} would take cannot be told from this recording.", what=what)
    values = {"what": what, "now": p.base_ns, "then": p.p50_ns, "low": p.p10_ns or 0, "high": p.p90_ns or 0}
    if (p.saving_ns or 0) <= 0:
        return message(
            "{what} takes {now:ns} now, and would take {then:ns} ({low:ns} to {high:ns}): it does not pay.", **values
        )
    return message(
        "{what} takes {now:ns} now, and should take {then:ns} ({low:ns} to {high:ns}){which}.", which=which, **values
    )
