"""An advice in the words of people: short, with numbers, and with how sure they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from perfkit_core.advice import wording
from perfkit_core.advice.assumptions import told
from perfkit_core.advice.model import Advice, Advices, After, Prediction
from perfkit_core.language import in_english, say
from perfkit_core.language.units import format_duration, format_ratio

_HOW: Final = {
    "replay": in_english("replayed on the recording"),
    "microbenchmark": in_english("from measurements of single operations on such a device"),
    "prior": in_english("from what such changes saved elsewhere, not from this recording"),
}
"""Where a number comes from, by method."""


def title(number: int, advice: Advice, asked: str | None = None) -> str:
    """``1. Load data in worker processes: saves 66% of the time``.

    ``asked``: the question that this answers (``loader-workers=4``)."""
    parts = [part for part in (asked, advice.title, saves(advice.prediction)) if part]
    return f"{number}. {say(': ').join(parts)}"


def saves(prediction: Prediction) -> str:
    """``saves 12% of the time``, or what it costs; ``may save`` where by its interval it may cost as well; "" where no
    number is known."""
    if prediction.saving_ns is None:
        return ""
    share = prediction.saving_ns / max(prediction.base_ns, 1)
    if share == 0:
        return say("saves nothing")
    if share > 0 and (prediction.saving_p10_ns or 0) < 0:
        return say("may save {share} of the time", share=format_ratio(share))
    if share > 0:
        return say("saves {share} of the time", share=format_ratio(share))
    return say("costs {share} more time", share=format_ratio(-share))


def lines(advice: Advice, found: Advices, of: str) -> Iterator[str]:
    """What, where, how much, how sure, after what. ``of``: what the times are of, "step" or "recording"."""
    yield sentence(advice.candidate.what)
    where = say("; ").join(part for part in (advice.place, steps(advice)) if part)
    if where:
        yield say("Where: {where}", where=where)
    yield from expected(advice.prediction, of)
    if advice.prediction.saving_ns is not None:
        yield say("How sure: {how}", how=how_sure(advice, found))
    if advice.id in found.after:
        yield say("With others: {after}", after=after(advice, found))
    yield say("Id: {id}", id=advice.id)


def expected(prediction: Prediction, of: str) -> Iterator[str]:
    """The time now and afterwards, and the saving, each with its interval."""
    p = prediction
    if p.p50_ns is None or p.saving_ns is None:
        yield say("; ").join(filter(None, (say("Saving: cannot be told from this recording"), _ceiling(p))))
        return
    text = in_english("Recording: {now} now, {then} afterwards (p10 to p90: {interval})")
    if of == "step":
        text = in_english("Step: {now} now, {then} afterwards (p10 to p90: {interval})")
    yield say(
        text, now=format_duration(p.base_ns), then=format_duration(p.p50_ns), interval=_from_to(p.p10_ns, p.p90_ns)
    )
    yield _loss(p) if p.saving_ns < 0 else _saving(p)


def _saving(p: Prediction) -> str:
    interval = _from_to(p.saving_p10_ns, p.saving_p90_ns)
    told = say("Saving: {time} ({interval})", time=format_duration(p.saving_ns or 0), interval=interval)
    return say("; ").join(filter(None, (told, _ceiling(p))))


def _loss(p: Prediction) -> str:
    """A saving below 0 is said as what it is."""
    most, least = -(p.saving_p10_ns or 0), -(p.saving_p90_ns or 0)
    time = format_duration(-(p.saving_ns or 0))
    return say("Cost: {time} more ({interval})", time=time, interval=_from_to(least, most))


def _from_to(low: int | None, high: int | None) -> str:
    return say("{low} to {high}", low=format_duration(low or 0), high=format_duration(high or 0))


def _ceiling(prediction: Prediction) -> str:
    """What no change of this kind can save more than without others, said as what it is."""
    if prediction.ceiling_ns is None:
        return ""
    return say("never more than {time} by itself", time=format_duration(prediction.ceiling_ns))


def how_sure(advice: Advice, found: Advices) -> str:
    """Where the number comes from, what the interval rests on, and what is not counted on."""
    parts = [say(_HOW[advice.prediction.method])]
    taken = say(", ").join(told(advice.rule, one) for one in advice.candidate.assumptions)
    parts.append(say("assumed: {what}", what=taken) if taken else say("nothing assumed"))
    parts += _sign(advice.prediction)
    if found.noise_ns and 0 < (advice.prediction.saving_ns or 0) < found.noise_ns:
        text = in_english("less than these steps differ by chance (±{time}): take many to measure it")
        parts.append(say(text, time=format_duration(found.noise_ns)))
    why = found.excluded.get(advice.id)
    if why and advice.prediction.method == "replay":
        parts.append(say("not in the combined saving: {why}", why=why))
    return say("; ").join(parts)


def after(advice: Advice, found: Advices) -> str:
    """What is left, or only comes, of a saving once other advice is followed: ``saves nothing by itself, 12 ms once
    loader-workers-29c1 is done``."""
    own, then = advice.prediction.saving_ns or 0, found.after[advice.id]
    words = {
        "others": _others(advice, then, found), "verb": "is" if len(then.once) == 1 else "are",
        "own": format_duration(own), "then": format_duration(then.saving_ns),
    }  # fmt: skip
    if 0 < then.saving_ns < own:
        return say("little is left of it ({then}) once {others} {verb} done", **words)
    if then.saving_ns < own:
        return say("nothing is left of it once {others} {verb} done", **words)
    if own > 0:
        return say("saves {own} by itself, {then} once {others} {verb} done", **words)
    return say("saves nothing by itself, {then} once {others} {verb} done", **words)


def _others(advice: Advice, then: After, found: Advices) -> str:
    """Their ids; all that can be combined are said so."""
    if len(then.once) > 2 and set(then.once) == set(found.together) - {advice.id}:
        if advice.id in found.together:
            return say("the other {count} that can be combined", count=len(then.once))
        return say("the {count} that can be combined", count=len(then.once))
    return wording.both(then.once)


def _sign(p: Prediction) -> Iterator[str]:
    """What the interval leaves open."""
    if (p.saving_ns or 0) >= 0 > (p.saving_p10_ns or 0):
        yield say("it may cost time instead: measure it")
    if (p.saving_ns or 0) < 0 < (p.saving_p90_ns or 0):
        yield say("it may save time all the same: measure it")


def steps(advice: Advice) -> str:
    """The steps in which it was found."""
    if advice.steps is None:
        return ""
    first, last = advice.steps
    if first == last:
        return say("step {number}", number=first)
    return say("steps {first} to {last}", first=first, last=last)


def sentence(text: str) -> str:
    """With a full stop, and a capital unless it begins with the name of something."""
    first = text.split(" ", 1)[0].rstrip(",:;")
    begin = first.capitalize() if first.isalpha() and first.islower() else first
    begun = f"{begin}{text[len(first) :]}"
    return begun if text.endswith((".", "!", "?", "。")) else say("{sentence}.", sentence=begun)
