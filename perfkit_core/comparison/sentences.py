"""What a hurried reader needs of a comparison: the verdict and how sure it is, what else differs, what is unmatched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from perfkit_core.comparison import peaks
from perfkit_core.comparison.gate.outcomes import CANNOT_TELL, FAILED, WITHIN_NOISE, Outcome
from perfkit_core.comparison.normalise import Normalised
from perfkit_core.comparison.pair import Pair
from perfkit_core.comparison.samples.statistics import FASTER, NO_DIFFERENCE, SLOWER, TOO_FEW, SampleStatistics
from perfkit_core.report.headline import duration

_WORDS = {
    SLOWER: "Slower",
    FASTER: "Faster",
    NO_DIFFERENCE: "No difference beyond noise",
    TOO_FEW: "Too few steps to tell",
}
_ALIKE = 0.5
_ORIGINS = {"given": "as given", "recorded": "as recorded", "shapes": "by the shapes of its operators"}


def headline(
    found: Pair, matched_share: Mapping[str, Mapping[str, float | None]], causes: Sequence[str] = ()
) -> tuple[str, ...]:
    """Sentences, the most important first; each says only what a table or the head of the report says. ``causes``:
    those that say where the difference comes from."""
    verdict, *hints = (*_unlike(matched_share), *_steps(found))
    besides = (*hints, *_work(found), *_devices(found), *_unmatched(matched_share))
    return (*_gate(found.outcomes), verdict, *causes, *besides)


def _gate(found: Sequence[Outcome]) -> Iterator[str]:
    if found:
        failed = [one.condition.text for one in found if one.result == FAILED]
        told = f"{len(failed)} of {len(found)} failed: {'; '.join(failed)}" if failed else "passed"
        unsure = [one.condition.text for one in found if one.result in (WITHIN_NOISE, CANNOT_TELL)]
        yield f"Gate: {told}" + (f"; exceeded, but not beyond noise: {'; '.join(unsure)}." if unsure else ".")


def _steps(found: Pair) -> Iterator[str]:
    if found.steps is None:
        yield "Without steps in both, the whole recordings are compared."
        return
    yield step_sentence(found.steps)
    if found.steps.verdict == NO_DIFFERENCE and found.steps.difference and max(found.steps.captures) < 2:
        yield (
            f"Single captures hide what processes differ by, which is taken for {found.between:.0%}: several of each "
            "side, or --noise where it is known, can tell smaller differences."
        )


def step_sentence(steps: SampleStatistics) -> str:
    """The verdict on the median step, with its interval and the noise."""
    if not steps.difference:
        return f"The median step takes {duration(steps.base)} in both."
    told = f"{_WORDS[steps.verdict]}: the median step takes {_change(steps)}{_interval(steps)}"
    return told + (
        "." if steps.noise is None else f"; equal runs may differ by {duration(steps.noise)}{_quick(steps)}."
    )


def _quick(steps: SampleStatistics) -> str:
    """Why a difference above the noise is none: only the quickest steps are below it."""
    if steps.verdict != NO_DIFFERENCE or steps.quickest is None or abs(steps.difference) <= (steps.noise or 0):
        return ""
    return f", and the quickest steps do by {duration(abs(steps.quickest))} only"


def _change(steps: SampleStatistics) -> str:
    word = "longer" if steps.difference > 0 else "shorter"
    share = "" if steps.change_ratio is None else f", {abs(steps.change_ratio):.1%} {word}"
    return f"{duration(steps.other)} instead of {duration(steps.base)}{share}"


def _interval(steps: SampleStatistics) -> str:
    if steps.low is None or steps.high is None:
        return ""
    return f" (95% interval of the difference {signed(steps.low)} to {signed(steps.high)})"


def signed(ns: int) -> str:
    """A difference with its sign: ``+1.20 ms``."""
    return duration(ns) if ns <= 0 else f"+{duration(ns)}"


def _work(found: Pair) -> Iterator[str]:
    one = found.normalised
    if one is None:
        return
    if one.different_work:
        amounts = " and ".join(f"{float(work.amount):g}" for work in (one.base, one.other))
        origin = " and ".join(dict.fromkeys(_ORIGINS[work.origin] for work in (one.base, one.other)))
        yield f"Their steps do not do the same work: {amounts} {one.unit}s in base and other ({origin})."
    yield f"Per {one.name}: {_per(one)}"


def _per(one: Normalised) -> str:
    steps = one.statistics
    if not steps.difference:
        return f"{duration(steps.base)} in both."
    return f"{_WORDS[steps.verdict].lower()}, {_change(steps)}."


def _devices(found: Pair) -> Iterator[str]:
    if peaks.different(found.whole):
        names = " and ".join(", ".join(peaks.products(trace)) for trace in found.whole)
        yield f"Different devices: {names}. Their peaks stand below."


def _unlike(shares: Mapping[str, Mapping[str, float | None]]) -> Iterator[str]:
    """Where a comparison says little: most of a run has no counterpart."""
    known = [share for by_place in shares.values() for share in by_place.values() if share is not None]
    if known and min(known) < _ALIKE:
        yield f"These runs hardly do the same: of one, {1 - min(known):.0%} of the operator time has no counterpart."


def _unmatched(shares: Mapping[str, Mapping[str, float | None]]) -> Iterator[str]:
    for side, by_place in shares.items():
        known = [f"{1 - share:.1%} of {place} operator time" for place, share in by_place.items() if share is not None]
        if known:
            yield f"Unmatched in {side}: {' and '.join(known)}."
