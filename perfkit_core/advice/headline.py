"""The one sentence about all advice that a hurried reader needs; where something was asked, a sentence an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from perfkit_core.advice.model import Advices, Prediction
from perfkit_core.advice.sentences import sentence
from perfkit_core.report.headline import duration

_NO_GAIN: Final = ": it does not pay"
NOTHING: Final = "nothing was found that would save time"


def of(found: Advices, whole: str) -> Iterator[str]:
    """``whole``: what the times are of, "step" or "recording"."""
    what = "a step" if whole == "step" else f"the {whole}"
    if found.asked:
        for question, one in zip(found.asked, found.advice, strict=True):
            yield f"{question}: {_answer(what, one.prediction)}"
        return
    savings = [one.prediction for one in found.advice if one.prediction.saving_ns is not None]
    if not savings:
        if not found.advice and not found.without_saving and len(found.not_evaluable) == 1:
            yield "What was asked cannot be told from this recording."
            return
        notes = {0: "", 1: "; one thing is worth knowing"}.get(len(found.advice), "; some things are worth knowing")
        yield sentence(f"{NOTHING}{notes}")
        return
    best = _best(found, savings)
    yield f"{_count(len(savings))}: {_answer(what, best, _with(found, best, len(savings)))}"


def largest(found: Advices, whole: str, count: int) -> Iterator[str]:
    """The advice that saves most, a sentence each."""
    what = "a step" if whole == "step" else f"the {whole}"
    savings = [one for one in found.advice if (one.prediction.saving_ns or 0) > 0]
    for number, one in enumerate(savings[:count], 1):
        yield f"{number}. {one.title}: {_answer(what, one.prediction)}"


def _count(changes: int) -> str:
    return "One change" if changes == 1 else f"{changes} changes"


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
        return " with the first"
    if len(found.together) == changes:
        return " with both" if changes == 2 else " with all of them"
    return f" with the {len(found.together)} that can be combined"


def _answer(what: str, p: Prediction, which: str = "") -> str:
    """Now and afterwards, with the interval."""
    if p.p50_ns is None:
        return f"what {what} would take cannot be told from this recording."
    interval = f" ({duration(p.p10_ns or 0)} to {duration(p.p90_ns or 0)})"
    if (p.saving_ns or 0) <= 0:
        return (
            f"{what} takes {duration(p.base_ns)} now, and would take {duration(p.p50_ns)}{interval}: it does not pay."
        )
    return f"{what} takes {duration(p.base_ns)} now, and should take {duration(p.p50_ns)}{interval}{which}."
