"""What a hurried reader needs of a comparison: the verdict and how sure it is, what else differs, what is unmatched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from perfkit_core.compare.comparison import device_names, different_devices
from perfkit_core.compare.gate.conditions import CANNOT_TELL, FAILED, WITHIN_NOISE, Outcome
from perfkit_core.compare.pair import Normalised, Pair
from perfkit_core.compare.statistics import (
    FASTER,
    NO_DIFFERENCE,
    PERHAPS,
    PERHAPS_FASTER,
    PERHAPS_SLOWER,
    SLOWER,
    TOO_FEW,
    SampleStatistics,
)
from perfkit_core.language.messages import Message, mark, message

_WORDS = {
    SLOWER: mark("Slower"),
    FASTER: mark("Faster"),
    PERHAPS_SLOWER: mark("Slower, but not told from noise of the machine"),
    PERHAPS_FASTER: mark("Faster, but not told from noise of the machine"),
    NO_DIFFERENCE: mark("No difference beyond noise"),
    TOO_FEW: mark("Too few steps to tell"),
}
_LATER_WORDS = {
    SLOWER: mark("slower"),
    FASTER: mark("faster"),
    PERHAPS_SLOWER: mark("slower, but not told from noise of the machine"),
    PERHAPS_FASTER: mark("faster, but not told from noise of the machine"),
    NO_DIFFERENCE: mark("no difference beyond noise"),
    TOO_FEW: mark("too few steps to tell"),
}
"""The same within a sentence."""
_ENOUGH = 3
"""Captures of a side that tell what processes differ by."""
_ALIKE = 0.5
_NEARLY_ALL = 0.9995
"""What is above this is told as all but 0.0 %."""
_ORIGINS = {
    "given": mark("as given"),
    "recorded": mark("as recorded"),
    "shapes": mark("by the shapes of its operators"),
}


def headline(
    found: Pair, matched_share: Mapping[str, Mapping[str, float | None]], causes: Sequence[Message] = ()
) -> tuple[Message, ...]:
    """Sentences, the most important first; each says only what a table or the head of the report says. ``causes``:
    those that say where the difference comes from."""
    verdict, *hints = _steps(found)
    besides = (*hints, *_by_work(found), *_matched(matched_share))
    return (*_gate(found.outcomes), verdict, *same_recording(found), *_unlike(matched_share), *causes, *besides)


def warnings(found: Pair) -> tuple[Message, ...]:
    """What makes the two runs less comparable: other work, devices, options of the profiler."""
    return (*_other_work(found), *_devices(found), *_options(found))


def _gate(outcomes: Sequence[Outcome]) -> Iterator[Message]:
    if outcomes:
        failed = [one.condition.text for one in outcomes if one.result == FAILED]
        unknown = [one.condition.text for one in outcomes if one.result == CANNOT_TELL]
        unsure = [one.condition.text for one in outcomes if one.result == WITHIN_NOISE]
        result = message("cannot tell") if unknown else message("passed")
        if failed:
            result = message(
                "{count} of {all} failed: {conditions:parts}", count=len(failed), all=len(outcomes), conditions=failed
            )
        if unsure:
            result = message(
                "{told}; exceeded, but not beyond noise: {conditions:parts}", told=result, conditions=unsure
            )
        if unknown:
            result = message(
                "{told}; exceeded, with too few steps or captures to tell it from noise: {conditions:parts}",
                told=result,
                conditions=unknown,
            )
        yield message("Gate: {told}.", told=result)


def _steps(found: Pair) -> Iterator[Message]:
    if found.steps is None:
        yield message("Without steps in both, the whole recordings are compared.")
        return
    yield step_sentence(found.steps)
    unsure = found.steps.verdict in (NO_DIFFERENCE, *PERHAPS) and found.steps.difference
    if unsure and max(found.steps.captures) < 2:
        yield message(
            "Single captures hide what processes differ by, which is taken for {share:ratio}: several of each side, or "
            "--noise where it is known, can tell smaller differences.",
            share=found.between,
        )


def step_sentence(steps: SampleStatistics) -> Message:
    """Return the verdict on the median step, with its interval and the noise."""
    if not steps.difference:
        return message("The median step takes {time:ns} in both.", time=steps.base)
    words = {"verdict": message(_WORDS[steps.verdict]), "change": _change(steps), "interval": _interval(steps)}
    if steps.noise is None:
        return message("{verdict}: the median step takes {change}{interval}.", **words)
    return message(
        "{verdict}: the median step takes {change}{interval}; equal runs may differ by {noise:ns}{quickest}{advice}.",
        **words,
        noise=steps.noise,
        quickest=_quick(steps),
        advice=_to_do(steps),
    )


def _quick(steps: SampleStatistics) -> Message | None:
    """Why a difference above the noise is not sure: the quickest steps are below it."""
    above = abs(steps.difference) > (steps.noise or 0)
    if steps.verdict not in (NO_DIFFERENCE, *PERHAPS) or steps.quickest is None or not above:
        return None
    return message(", and the quickest steps do by {time:ns} only", time=abs(steps.quickest))


def _to_do(steps: SampleStatistics) -> Message | None:
    """What would tell a difference from noise."""
    if steps.verdict not in PERHAPS:
        return None
    return message("; record three of each") if min(steps.captures) < _ENOUGH else message("; record more of each")


def _change(steps: SampleStatistics) -> Message:
    if steps.change_ratio is None:
        return message("{other:ns} instead of {base:ns}", other=steps.other, base=steps.base)
    values = {"other": steps.other, "base": steps.base, "share": abs(steps.change_ratio)}
    if steps.difference > 0:
        return message("{other:ns} instead of {base:ns}, {share:ratio} longer", **values)
    return message("{other:ns} instead of {base:ns}, {share:ratio} shorter", **values)


def _interval(steps: SampleStatistics) -> Message | None:
    if steps.low is None or steps.high is None:
        return None
    return message(" (95% interval of the difference {low:+ns} to {high:+ns})", low=steps.low, high=steps.high)


def _by_work(found: Pair) -> Iterator[Message]:
    if found.normalised is not None:
        yield message("Per {unit}: {change}", unit=message(found.normalised.name), change=_per(found.normalised))


def _per(one: Normalised) -> Message:
    steps = one.statistics
    if not steps.difference:
        return message("{time:ns} in both.", time=steps.base)
    return message("{verdict}, {change}.", verdict=message(_LATER_WORDS[steps.verdict]), change=_change(steps))


def _other_work(found: Pair) -> Iterator[Message]:
    one = found.normalised
    if one is not None and one.different_work:
        works = (one.base, one.other)
        yield message(
            "Their steps do not do the same work: {base:count} and {other:count} {unit}s in base and other "
            "({origin:and}).",
            base=float(one.base.amount),
            other=float(one.other.amount),
            unit=message(one.unit),
            origin=[message(_ORIGINS[origin]) for origin in dict.fromkeys(work.origin for work in works)],
        )


def _devices(found: Pair) -> Iterator[Message]:
    if different_devices(found.whole):
        base, other = (", ".join(device_names(trace)) for trace in found.whole)
        yield message("Different devices: {base} and {other}. Their peaks stand below.", base=base, other=other)


def _options(found: Pair) -> Iterator[Message]:
    """What a profiler records costs time, mostly on the host. Only where both recordings tell what was asked for, in
    the words of one framework."""
    if found.whole[0].meta.framework != found.whole[1].meta.framework:
        return
    asked = [{name for name, value in trace.meta.options.items() if value is True} for trace in found.whole]
    if all(trace.meta.options for trace in found.whole) and asked[0] != asked[1]:
        alone = [", ".join(sorted(mine - theirs)) for mine, theirs in (asked, asked[::-1])]
        told = [message(text, names=names) for text, names in zip(_ALONE, alone, strict=True) if names]
        yield message("The profiler was asked for other things, which takes time: {told:parts}.", told=told)


_ALONE = (mark("{names} in base only"), mark("{names} in other only"))


def same_recording(found: Pair) -> Iterator[Message]:
    """A recording that was named twice, or copied, has no difference to itself."""
    if found.twice:
        yield message("Base and other hold the same recording: {sources:list}.", sources=list(found.twice))


def _unlike(shares: Mapping[str, Mapping[str, float | None]]) -> Iterator[Message]:
    """Where a comparison says little: most of a run has no counterpart."""
    of_operators = [by_place[where] for by_place in shares.values() for where in _OF_OPERATORS]
    known = [share for share in of_operators if share is not None]
    if known and min(known) < _ALIKE:
        yield message(
            "These runs hardly do the same: of one, {share:ratio} of the operator time has no counterpart.",
            share=1 - min(known),
        )


_OF_OPERATORS = ("cpu", "device")
_UNMATCHED = {
    ("base", "cpu"): mark("Unmatched in base: {share:ratio} of cpu operator time."),
    ("base", "device"): mark("Unmatched in base: {share:ratio} of device operator time."),
    ("base", "step"): mark("Unmatched in base: {share:ratio} of all time, each instant once."),
    ("other", "cpu"): mark("Unmatched in other: {share:ratio} of cpu operator time."),
    ("other", "device"): mark("Unmatched in other: {share:ratio} of device operator time."),
    ("other", "step"): mark("Unmatched in other: {share:ratio} of all time, each instant once."),
}


def _matched(shares: Mapping[str, Mapping[str, float | None]]) -> Iterator[Message]:
    found = {(side, where): share for side, by_place in shares.items() for where, share in by_place.items()}
    known = {key: share for key, share in found.items() if share is not None}
    if known and all(share == 1 for share in known.values()):
        yield message("All operator time has a counterpart.")
    for key, share in known.items():
        if share < _NEARLY_ALL:
            yield message(_UNMATCHED[key], share=1 - share)
