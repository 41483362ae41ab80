"""An advice in the words of people: short, with numbers, and with how sure they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from perfkit_core.advice import wording
from perfkit_core.advice.assumptions import told
from perfkit_core.advice.model import Advice, Advices, After, Prediction
from perfkit_core.report.headline import duration

_HOW: Final = {
    "replay": "replayed on the recording",
    "microbenchmark": "from measurements of single operations on such a device",
    "prior": "from what such changes saved elsewhere, not from this recording",
}
"""Where a number comes from, by method."""


def title(number: int, advice: Advice, asked: str | None = None) -> str:
    """``1. Load data in worker processes: saves 66% of the time (high)``; what saves nothing has no severity.

    ``asked``: the question that this answers (``loader-workers=4``)."""
    parts = [part for part in (asked, advice.title, saves(advice.prediction)) if part]
    severity = "" if advice.severity == "none" else f" ({advice.severity})"
    return f"{number}. {': '.join(parts)}{severity}"


def saves(prediction: Prediction) -> str:
    """``saves 12% of the time``, or what it costs; "" where no number is known."""
    if prediction.saving_ns is None:
        return ""
    share = prediction.saving_ns / max(prediction.base_ns, 1)
    if share == 0:
        return "saves nothing"
    return f"saves {percent(share)} of the time" if share > 0 else f"costs {percent(-share)} more time"


def lines(advice: Advice, found: Advices, of: str) -> Iterator[str]:
    """What, where, how much, how sure, after what. ``of``: what the times are of, "step" or "recording"."""
    yield sentence(advice.candidate.what)
    where = "; ".join(part for part in (advice.place, steps(advice)) if part)
    if where:
        yield f"Where: {where}"
    yield from expected(advice.prediction, of)
    if advice.prediction.saving_ns is not None:
        yield f"How sure: {how_sure(advice, found)}"
    if advice.id in found.after:
        yield f"With others: {after(advice, found)}"
    yield f"Id: {advice.id}"


def expected(prediction: Prediction, of: str) -> Iterator[str]:
    """The time now and afterwards, and the saving, each with its interval."""
    p = prediction
    if p.p50_ns is None or p.saving_ns is None:
        aside = _ceiling(p)
        yield f"Saving: cannot be told from this recording{f'; {aside}' if aside else ''}"
        return
    yield (
        f"{of.capitalize()}: {duration(p.base_ns)} now, {duration(p.p50_ns)} afterwards "
        f"(p10 to p90: {_from_to(p.p10_ns, p.p90_ns)})"
    )
    yield _loss(p) if p.saving_ns < 0 else _saving(p)


def _saving(p: Prediction) -> str:
    aside = _ceiling(p)
    told = f"Saving: {duration(p.saving_ns or 0)} ({_from_to(p.saving_p10_ns, p.saving_p90_ns)})"
    return f"{told}; {aside}" if aside else told


def _loss(p: Prediction) -> str:
    """A saving below 0 is said as what it is."""
    most, least = -(p.saving_p10_ns or 0), -(p.saving_p90_ns or 0)
    return f"Cost: {duration(-(p.saving_ns or 0))} more ({_from_to(least, most)})"


def _from_to(low: int | None, high: int | None) -> str:
    return f"{duration(low or 0)} to {duration(high or 0)}"


def _ceiling(prediction: Prediction) -> str:
    """What no change of this kind can save more than without others, said as what it is."""
    if prediction.ceiling_ns is None:
        return ""
    return f"never more than {duration(prediction.ceiling_ns)} by itself"


def how_sure(advice: Advice, found: Advices) -> str:
    """Where the number comes from, what the interval rests on, and what is not counted on."""
    parts = [_HOW[advice.prediction.method]]
    taken = ", ".join(told(advice.rule, one) for one in advice.candidate.assumptions)
    parts.append(f"assumed: {taken}" if taken else "nothing assumed")
    parts += _sign(advice.prediction)
    if found.noise_ns and 0 < (advice.prediction.saving_ns or 0) < found.noise_ns:
        parts.append(f"less than these steps differ by chance (±{duration(found.noise_ns)}): take many to measure it")
    why = found.excluded.get(advice.id)
    if why and advice.prediction.method == "replay":
        parts.append(f"not in the combined saving: {why}")
    return "; ".join(parts)


def after(advice: Advice, found: Advices) -> str:
    """What is left, or only comes, of a saving once other advice is followed: ``saves nothing by itself, 12 ms once
    loader-workers-29c1 is done``."""
    own, then = advice.prediction.saving_ns or 0, found.after[advice.id]
    once = f"once {_others(advice, then, found)} {'is' if len(then.once) == 1 else 'are'} done"
    if then.saving_ns < own:
        left = f"little is left of it ({duration(then.saving_ns)})" if then.saving_ns > 0 else "nothing is left of it"
        return f"{left} {once}"
    by_itself = f"saves {duration(own)} by itself" if own > 0 else "saves nothing by itself"
    return f"{by_itself}, {duration(then.saving_ns)} {once}"


def _others(advice: Advice, then: After, found: Advices) -> str:
    """Their ids; all that can be combined are said so."""
    if len(then.once) > 2 and set(then.once) == set(found.together) - {advice.id}:
        return f"the {'other ' if advice.id in found.together else ''}{len(then.once)} that can be combined"
    return wording.both(then.once)


def _sign(p: Prediction) -> Iterator[str]:
    """What the interval leaves open."""
    if (p.saving_ns or 0) >= 0 > (p.saving_p10_ns or 0):
        yield "it may cost time instead: measure it"
    if (p.saving_ns or 0) < 0 < (p.saving_p90_ns or 0):
        yield "it may save time all the same: measure it"


def steps(advice: Advice) -> str:
    """The steps in which it was found."""
    if advice.steps is None:
        return ""
    first, last = advice.steps
    return f"step {first}" if first == last else f"steps {first} to {last}"


def percent(share: float) -> str:
    """A share with as many digits as matter."""
    return f"{share:.0%}" if abs(share) >= 0.1 else f"{share:.1%}"


def sentence(text: str) -> str:
    """With a full stop, and a capital unless it begins with the name of something."""
    first = text.split(" ", 1)[0].rstrip(",:;")
    begin = first.capitalize() if first.isalpha() and first.islower() else first
    return f"{begin}{text[len(first) :]}{'' if text.endswith(('.', '!', '?')) else '.'}"
