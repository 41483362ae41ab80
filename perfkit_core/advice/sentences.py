"""An advice in the words of people: short, with numbers, and with how sure they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from perfkit_core.advice.model import Advice, Advices, Identity, Prediction
from perfkit_core.report.headline import duration

_HOW: Final = {
    "replay": "replayed on the recording",
    "microbenchmark": "from measurements of single operations on such a device",
    "prior": "from what such changes saved elsewhere, not from this recording",
}
"""Where a number comes from, by method."""


def title(number: int, advice: Advice) -> str:
    """``1. Load data in worker processes: saves 66% of the time (high)``."""
    saves = _saves(advice.prediction)
    return f"{number}. {advice.title}{': ' if saves else ''}{saves} ({advice.severity})"


def _saves(prediction: Prediction) -> str:
    if prediction.saving_ns is None:
        return ""
    share = prediction.saving_ns / max(prediction.base_ns, 1)
    return f"saves {percent(share)} of the time" if share > 0 else f"costs {percent(-share)} more time"


def lines(advice: Advice, found: Advices, of: str) -> Iterator[str]:
    """What, where, how much, how sure. ``of``: what the times are of, "step" or "recording"."""
    yield sentence(advice.candidate.what)
    where = "; ".join(part for part in (advice.place, steps(advice)) if part)
    if where:
        yield f"Where: {where}"
    yield from expected(advice.prediction, of)
    if advice.prediction.saving_ns is not None:
        yield f"How sure: {how_sure(advice, found)}"
    yield f"Id: {advice.id}"


def expected(prediction: Prediction, of: str) -> Iterator[str]:
    """The time now and afterwards, and the saving, each with its interval."""
    p, aside = prediction, _ceiling(prediction)
    if p.p50_ns is None or p.saving_ns is None:
        yield f"Saving: cannot be told from this recording{f'; {aside}' if aside else ''}"
        return
    yield (
        f"{of.capitalize()}: {duration(p.base_ns)} now, {duration(p.p50_ns)} afterwards "
        f"(p10 to p90: {_from_to(p.p10_ns, p.p90_ns)})"
    )
    yield (
        f"Saving: {duration(p.saving_ns)} ({_from_to(p.saving_p10_ns, p.saving_p90_ns)}){f'; {aside}' if aside else ''}"
    )


def _from_to(low: int | None, high: int | None) -> str:
    return f"{duration(low or 0)} to {duration(high or 0)}"


def _ceiling(prediction: Prediction) -> str:
    """What no change of this kind can save more than, said as what it is."""
    if prediction.ceiling_ns is None:
        return ""
    return f"never more than {duration(prediction.ceiling_ns)}"


def how_sure(advice: Advice, found: Advices) -> str:
    """Where the number comes from, what the interval rests on, and what is not counted on."""
    parts = [_HOW[advice.prediction.method]]
    named = ", ".join(one.name for one in advice.candidate.assumptions)
    parts.append(f"assumed: {named}" if named else "nothing assumed")
    if (advice.prediction.saving_p10_ns or 0) < 0:
        parts.append("it may cost time instead: measure it")
    if found.noise_ns and 0 < (advice.prediction.saving_ns or 0) < found.noise_ns:
        parts.append(f"less than these steps differ by chance (±{duration(found.noise_ns)}): take many to measure it")
    why = found.excluded.get(advice.id)
    if why and advice.prediction.method == "replay":
        parts.append(f"not in the combined saving: {why}")
    return "; ".join(parts)


def steps(advice: Advice) -> str:
    """The steps in which it was found."""
    if advice.steps is None:
        return ""
    first, last = advice.steps
    return f"step {first}" if first == last else f"steps {first} to {last}"


def replayed(identity: Identity) -> str:
    """How well the unchanged recording was repeated."""
    if identity.error is None or identity.worst is None:
        return "Nothing was replayed: the recording holds no events of a host."
    count = f"{identity.steps} step{'s' * (identity.steps != 1)}"
    text = f"Replayed unchanged, the recording repeats itself with an error of {identity.error:.2%}"
    text += f" (median of {count}; worst {identity.worst:.2%})."
    if identity.unexplained is not None:
        text += f" {identity.unexplained:.1%} of the device's work starts later than anything recorded explains."
    return text


def together(found: Advices, of: str) -> Iterator[str]:
    """What all advice saves that does not exclude each other."""
    if found.combined is None or len(found.together) < 2:
        return
    first, second = expected(found.combined, of)
    yield f"All {len(found.together)} that can be combined, replayed at once: {first[:1].lower()}{first[1:]}. {second}."


def without_saving(found: Advices) -> Iterator[str]:
    """What was found, and is no advice."""
    none, little = [], []
    for one in found.without_saving:
        saving = one.prediction.saving_ns or 0
        little.append(f"{one.id} ({duration(saving)})") if saving > 0 else none.append(one.id)
    if none:
        yield f"Looked at, saves nothing: {', '.join(none)}."
    if little:
        yield f"Looked at, saves too little to read on: {', '.join(little)}."


def not_evaluable(reasons: Mapping[str, str]) -> Iterator[str]:
    """The rules that could not be evaluated, by reason, in one line. What would have to be recorded stands behind the
    colon of a reason: the machine formats have it, and so has ``--rule``."""
    by_reason: dict[str, list[str]] = {}
    for rule, why in reasons.items():
        by_reason.setdefault(why if len(reasons) == 1 else why.partition(": ")[0], []).append(rule)
    if by_reason:
        parts = "; ".join(f"{', '.join(rules)} ({why})" for why, rules in by_reason.items())
        more = "" if len(reasons) == 1 else " What to record for one of them: perfkit advise SOURCE --rule ID."
        yield f"Cannot be evaluated here: {parts}.{more}"


def percent(share: float) -> str:
    """A share with as many digits as matter."""
    return f"{share:.0%}" if abs(share) >= 0.1 else f"{share:.1%}"


def sentence(text: str) -> str:
    """With a full stop, and a capital unless it begins with the name of something."""
    first = text.split(" ", 1)[0].rstrip(",:;")
    begin = first.capitalize() if first.isalpha() and first.islower() else first
    return f"{begin}{text[len(first) :]}{'' if text.endswith(('.', '!', '?')) else '.'}"
