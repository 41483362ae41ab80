"""What a hurried reader needs of a comparison: the verdict and how sure it is, what else differs, what is unmatched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from perfkit_core.comparison import peaks
from perfkit_core.comparison.gate.outcomes import CANNOT_TELL, FAILED, WITHIN_NOISE, Outcome
from perfkit_core.comparison.normalise import Normalised
from perfkit_core.comparison.pair import Pair
from perfkit_core.comparison.samples.statistics import (
    FASTER,
    NO_DIFFERENCE,
    PERHAPS,
    PERHAPS_FASTER,
    PERHAPS_SLOWER,
    SLOWER,
    TOO_FEW,
    SampleStatistics,
)
from perfkit_core.language import in_english, say
from perfkit_core.language.units import format_count, format_duration, format_ratio

_WORDS = {
    SLOWER: in_english("Slower"),
    FASTER: in_english("Faster"),
    PERHAPS_SLOWER: in_english("Slower, but not told from noise of the machine"),
    PERHAPS_FASTER: in_english("Faster, but not told from noise of the machine"),
    NO_DIFFERENCE: in_english("No difference beyond noise"),
    TOO_FEW: in_english("Too few steps to tell"),
}
_ENOUGH = 3
"""Captures of a side that tell what processes differ by."""
_ALIKE = 0.5
_NEARLY_ALL = 0.9995
"""What lacks a counterpart beside a larger matched share is not worth a sentence."""
_ORIGINS = {
    "given": in_english("as given"),
    "recorded": in_english("as recorded"),
    "shapes": in_english("by the shapes of its operators"),
}


def headline(
    found: Pair, matched_share: Mapping[str, Mapping[str, float | None]], causes: Sequence[str] = ()
) -> tuple[str, ...]:
    """Sentences, the most important first; each says only what a table or the head of the report says. ``causes``:
    those that say where the difference comes from."""
    verdict, *hints = _steps(found)
    besides = (*hints, *_by_work(found), *_matched(matched_share))
    return (*_gate(found.outcomes), verdict, *same_recording(found), *_unlike(matched_share), *causes, *besides)


def warnings(found: Pair) -> tuple[str, ...]:
    """What makes the two runs less comparable: other work, devices, options of the profiler."""
    return (*_other_work(found), *_devices(found), *_options(found))


def _gate(found: Sequence[Outcome]) -> Iterator[str]:
    if found:
        failed = [one.condition.text for one in found if one.result == FAILED]
        unknown = [one.condition.text for one in found if one.result == CANNOT_TELL]
        told = say("cannot tell") if unknown else say("passed")
        if failed:
            names = "; ".join(failed)
            told = say("{count} of {all} failed: {conditions}", count=len(failed), all=len(found), conditions=names)
        unsure = [one.condition.text for one in found if one.result == WITHIN_NOISE]
        if unsure:
            told = say("{told}; exceeded, but not beyond noise: {conditions}", told=told, conditions="; ".join(unsure))
        if unknown:
            text = in_english("{told}; exceeded, with too few steps or captures to tell it from noise: {conditions}")
            told = say(text, told=told, conditions="; ".join(unknown))
        yield say("Gate: {told}.", told=told)


def _steps(found: Pair) -> Iterator[str]:
    if found.steps is None:
        yield say("Without steps in both, the whole recordings are compared.")
        return
    yield step_sentence(found.steps)
    unsure = found.steps.verdict in (NO_DIFFERENCE, *PERHAPS) and found.steps.difference
    if unsure and max(found.steps.captures) < 2:
        yield say(
            "Single captures hide what processes differ by, which is taken for {share}: several of each side, or "
            "--noise where it is known, can tell smaller differences.",
            share=format_ratio(found.between),
        )


def step_sentence(steps: SampleStatistics) -> str:
    """The verdict on the median step, with its interval and the noise."""
    if not steps.difference:
        return say("The median step takes {time} in both.", time=format_duration(steps.base))
    words = {"verdict": say(_WORDS[steps.verdict]), "change": _change(steps), "interval": _interval(steps)}
    if steps.noise is None:
        return say("{verdict}: the median step takes {change}{interval}.", **words)
    noise = format_duration(steps.noise) + _quick(steps) + _to_do(steps)
    return say(
        "{verdict}: the median step takes {change}{interval}; equal runs may differ by {noise}.", **words, noise=noise
    )


def _quick(steps: SampleStatistics) -> str:
    """Why a difference above the noise is not sure: the quickest steps are below it."""
    above = abs(steps.difference) > (steps.noise or 0)
    if steps.verdict not in (NO_DIFFERENCE, *PERHAPS) or steps.quickest is None or not above:
        return ""
    return say(", and the quickest steps do by {time} only", time=format_duration(abs(steps.quickest)))


def _to_do(steps: SampleStatistics) -> str:
    """What would tell a difference from noise."""
    if steps.verdict not in PERHAPS:
        return ""
    return say("; record three of each") if min(steps.captures) < _ENOUGH else say("; record more of each")


def _change(steps: SampleStatistics) -> str:
    times = {"other": format_duration(steps.other), "base": format_duration(steps.base)}
    if steps.change_ratio is None:
        return say("{other} instead of {base}", **times)
    share = format_ratio(abs(steps.change_ratio))
    if steps.difference > 0:
        return say("{other} instead of {base}, {share} longer", **times, share=share)
    return say("{other} instead of {base}, {share} shorter", **times, share=share)


def _interval(steps: SampleStatistics) -> str:
    if steps.low is None or steps.high is None:
        return ""
    low, high = format_duration(steps.low, signed=True), format_duration(steps.high, signed=True)
    return say(" (95% interval of the difference {low} to {high})", low=low, high=high)


def _by_work(found: Pair) -> Iterator[str]:
    if found.normalised is not None:
        yield say("Per {unit}: {change}", unit=say(found.normalised.name), change=_per(found.normalised))


def _per(one: Normalised) -> str:
    steps = one.statistics
    if not steps.difference:
        return say("{time} in both.", time=format_duration(steps.base))
    return say("{verdict}, {change}.", verdict=say(_WORDS[steps.verdict]).lower(), change=_change(steps))


def _other_work(found: Pair) -> Iterator[str]:
    one = found.normalised
    if one is not None and one.different_work:
        works = (one.base, one.other)
        yield say(
            "Their steps do not do the same work: {base} and {other} {unit}s in base and other ({origin}).",
            base=format_count(float(one.base.amount)),
            other=format_count(float(one.other.amount)),
            unit=say(one.unit),
            origin=say(" and ").join(dict.fromkeys(say(_ORIGINS[work.origin]) for work in works)),
        )


def _devices(found: Pair) -> Iterator[str]:
    if peaks.different(found.whole):
        base, other = (", ".join(peaks.products(trace)) for trace in found.whole)
        yield say("Different devices: {base} and {other}. Their peaks stand below.", base=base, other=other)


def _options(found: Pair) -> Iterator[str]:
    """What a profiler records costs time, mostly on the host. Only where both recordings tell what was asked for, in
    the words of one framework."""
    if found.whole[0].meta.framework != found.whole[1].meta.framework:
        return
    asked = [{name for name, value in trace.meta.options.items() if value is True} for trace in found.whole]
    if all(trace.meta.options for trace in found.whole) and asked[0] != asked[1]:
        alone = [", ".join(sorted(mine - theirs)) for mine, theirs in (asked, asked[::-1])]
        told = [say(text, names=names) for text, names in zip(_ALONE, alone, strict=True) if names]
        yield say("The profiler was asked for other things, which takes time: {told}.", told="; ".join(told))


_ALONE = (in_english("{names} in base only"), in_english("{names} in other only"))


def same_recording(found: Pair) -> Iterator[str]:
    """A recording that was named twice, or copied, has no difference to itself."""
    if found.twice:
        yield say("Base and other hold the same recording: {sources}.", sources=", ".join(found.twice))


def _unlike(shares: Mapping[str, Mapping[str, float | None]]) -> Iterator[str]:
    """Where a comparison says little: most of a run has no counterpart."""
    of_operators = [by_place[where] for by_place in shares.values() for where in _OF_OPERATORS]
    known = [share for share in of_operators if share is not None]
    if known and min(known) < _ALIKE:
        share = format_ratio(1 - min(known))
        yield say(
            "These runs hardly do the same: of one, {share} of the operator time has no counterpart.", share=share
        )


_OF_OPERATORS = ("cpu", "device")
_UNMATCHED = {
    ("base", "cpu"): in_english("Unmatched in base: {share} of cpu operator time."),
    ("base", "device"): in_english("Unmatched in base: {share} of device operator time."),
    ("base", "step"): in_english("Unmatched in base: {share} of all time, each instant once."),
    ("other", "cpu"): in_english("Unmatched in other: {share} of cpu operator time."),
    ("other", "device"): in_english("Unmatched in other: {share} of device operator time."),
    ("other", "step"): in_english("Unmatched in other: {share} of all time, each instant once."),
}


def _matched(shares: Mapping[str, Mapping[str, float | None]]) -> Iterator[str]:
    found = {(side, where): share for side, by_place in shares.items() for where, share in by_place.items()}
    known = {key: share for key, share in found.items() if share is not None}
    if known and all(share == 1 for share in known.values()):
        yield say("All operator time has a counterpart.")
    for key, share in known.items():
        if share < _NEARLY_ALL:
            yield say(_UNMATCHED[key], share=format_ratio(1 - share))
