"""An advice in the words of people: short, with numbers, and with how sure they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from perfkit_core.advice.assumptions import told
from perfkit_core.advice.model import Advice, Advices, After, Prediction
from perfkit_core.language import Message, Text, mark, message, render, say

_HOW: Final = {
    "replay": mark("replayed on the recording"),
    "microbenchmark": mark("from measurements of single operations on such a device"),
    "prior": mark("from what such changes saved elsewhere, not from this recording"),
}
"""Where a number comes from, by method."""


def title(number: int, advice: Advice, asked: str | None = None) -> str:
    """Return ``1. Load data in worker processes: saves 66% of the time``.

    ``asked``: the question that this answers (``loader-workers=4``)."""
    parts = [part for part in (asked, advice.title, render(saves(advice.prediction))) if part]
    return f"{number}. {say(': ').join(parts)}"


def saves(prediction: Prediction) -> Message | None:
    """Return ``saves 12% of the time``, or what it costs; ``may save`` where its interval includes a cost; None where
    no number is known."""
    if prediction.saving_ns is None:
        return None
    share = prediction.saving_ns / max(prediction.base_ns, 1)
    if share == 0:
        return message("saves nothing")
    if share > 0 and (prediction.saving_p10_ns or 0) < 0:
        return message("may save {share:ratio} of the time", share=share)
    if share > 0:
        return message("saves {share:ratio} of the time", share=share)
    return message("costs {share:ratio} more time", share=-share)


def lines(advice: Advice, found: Advices, of: str) -> Iterator[Text]:
    """What, where, how much, how sure, after what. ``of``: what the times are of, "step" or "recording"."""
    yield sentence(advice.candidate.what)
    where = [part for part in (advice.place, steps(advice)) if part]
    if where:
        yield message("Where: {where:parts}", where=where)
    yield from expected(advice.prediction, of)
    if advice.prediction.saving_ns is not None:
        yield message("How sure: {how:parts}", how=list(how_sure(advice, found)))
    if advice.id in found.after:
        yield message("With others: {after}", after=after(advice, found))
    yield message("Id: {id}", id=advice.id)


def expected(prediction: Prediction, of: str) -> Iterator[Message]:
    """The time now and afterwards, and the saving, each with its interval."""
    p = prediction
    if p.p50_ns is None or p.saving_ns is None:
        yield _parts(message("Saving: cannot be told from this recording"), _ceiling(p))
        return
    yield now_and_then(p, of)
    yield _loss(p) if p.saving_ns < 0 else _saving(p)


def now_and_then(p: Prediction, of: str, within: bool = False) -> Message:
    """Return the time now and afterwards; ``within``: as part of a sentence."""
    values = {"now": p.base_ns, "then": p.p50_ns, "low": p.p10_ns or 0, "high": p.p90_ns or 0}
    if of == "step" and within:
        return message("step: {now:ns} now, {then:ns} afterwards (p10 to p90: {low:ns} to {high:ns})", **values)
    if of == "step":
        return message("Step: {now:ns} now, {then:ns} afterwards (p10 to p90: {low:ns} to {high:ns})", **values)
    if within:
        return message("recording: {now:ns} now, {then:ns} afterwards (p10 to p90: {low:ns} to {high:ns})", **values)
    return message("Recording: {now:ns} now, {then:ns} afterwards (p10 to p90: {low:ns} to {high:ns})", **values)


def _saving(p: Prediction) -> Message:
    saving = message(
        "Saving: {time:ns} ({low:ns} to {high:ns})",
        time=p.saving_ns or 0,
        low=p.saving_p10_ns or 0,
        high=p.saving_p90_ns or 0,
    )
    return _parts(saving, _ceiling(p))


def _loss(p: Prediction) -> Message:
    """A saving below 0 is told as a cost."""
    return message(
        "Cost: {time:ns} more ({low:ns} to {high:ns})",
        time=-(p.saving_ns or 0),
        low=-(p.saving_p90_ns or 0),
        high=-(p.saving_p10_ns or 0),
    )


def _ceiling(p: Prediction) -> Message | None:
    """What no change of this kind can save more than without others."""
    return None if p.ceiling_ns is None else message("never more than {time:ns} by itself", time=p.ceiling_ns)


def _parts(*parts: Message | None) -> Message:
    return message("{parts:parts}", parts=[part for part in parts if part is not None])


def how_sure(advice: Advice, found: Advices) -> Iterator[Message]:
    """Where the number comes from, what the interval rests on, and what is not counted on."""
    yield message(_HOW[advice.prediction.method])
    taken = [told(advice.rule, one) for one in advice.candidate.assumptions]
    yield message("assumed: {what:list}", what=taken) if taken else message("nothing assumed")
    yield from _sign(advice.prediction)
    if found.noise_ns and 0 < (advice.prediction.saving_ns or 0) < found.noise_ns:
        yield message(
            "less than these steps differ by chance (±{time:ns}): take many to measure it", time=found.noise_ns
        )
    why = found.excluded.get(advice.id)
    if why and advice.prediction.method == "replay":
        yield message("not in the combined saving: {why}", why=why)


def after(advice: Advice, found: Advices) -> Message:
    """What is left, or only comes, of a saving once other advice is followed: ``saves nothing by itself, 12 ms once
    loader-workers-29c1 is done``."""
    own, then = advice.prediction.saving_ns or 0, found.after[advice.id]
    others = {"others": _others(advice, then, found), "verb": "is" if len(then.once) == 1 else "are"}
    if 0 < then.saving_ns < own:
        return message("little is left of it ({then:ns}) once {others} {verb} done", **others, then=then.saving_ns)
    if then.saving_ns < own:
        return message("nothing is left of it once {others} {verb} done", **others)
    if own > 0:
        return message(
            "saves {own:ns} by itself, {then:ns} once {others} {verb} done", **others, own=own, then=then.saving_ns
        )
    return message("saves nothing by itself, {then:ns} once {others} {verb} done", **others, then=then.saving_ns)


def _others(advice: Advice, then: After, found: Advices) -> Message:
    """Their ids; all that can be combined are told as such."""
    if len(then.once) > 2 and set(then.once) == set(found.together) - {advice.id}:
        if advice.id in found.together:
            return message("the other {count} that can be combined", count=len(then.once))
        return message("the {count} that can be combined", count=len(then.once))
    return message("{names:and}", names=then.once)


def _sign(p: Prediction) -> Iterator[Message]:
    """What the interval leaves open."""
    if (p.saving_ns or 0) >= 0 > (p.saving_p10_ns or 0):
        yield message("it may cost time instead: measure it")
    if (p.saving_ns or 0) < 0 < (p.saving_p90_ns or 0):
        yield message("it may save time all the same: measure it")


def steps(advice: Advice) -> Message | None:
    """Return the steps in which it was found, None where it is of none."""
    if advice.steps is None:
        return None
    first, last = advice.steps
    if first == last:
        return message("step {number}", number=first)
    return message("steps {first} to {last}", first=first, last=last)


def sentence(text: Text) -> str:
    """Return the text with a full stop, and a capital unless it begins with a name."""
    begun = capitalized(text)
    return begun if begun.endswith((".", "!", "?", "。")) else say("{sentence}.", sentence=begun)


def capitalized(text: Text) -> str:
    """Return the text with a capital, unless it begins with a name such as ``torch.compile``."""
    shown = render(text)
    first = shown.split(" ", 1)[0].rstrip(",:;")
    return f"{first.capitalize()}{shown[len(first) :]}" if first.isalpha() and first.islower() else shown
