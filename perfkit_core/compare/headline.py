"""The summary of a comparison in sentences: the verdict with its certainty, other differences, the unmatched share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from perfkit_core.compare import comparison, statistics
from perfkit_core.compare.gate.conditions import CANNOT_TELL, FAILED, WITHIN_NOISE, Outcome
from perfkit_core.compare.pair import Pair
from perfkit_core.language.messages import Message, mark, message

_VERDICTS: Final = {
    statistics.SLOWER: mark("Slower"),
    statistics.FASTER: mark("Faster"),
    statistics.PERHAPS_SLOWER: mark("Possibly slower (machine noise cannot be ruled out)"),
    statistics.PERHAPS_FASTER: mark("Possibly faster (machine noise cannot be ruled out)"),
    statistics.NO_DIFFERENCE: mark("No difference beyond noise"),
    statistics.TOO_FEW: mark("Too few steps to tell"),
}
_ORIGINS: Final = {
    "given": mark("as given"),
    "recorded": mark("as recorded"),
    "shapes": mark("inferred from operator shapes"),
}
_ALONE: Final = (mark("{names} in base only"), mark("{names} in other only"))
_UNMATCHED: Final = {
    ("base", "cpu"): mark("{share:ratio} of the base's host operator time has no match in the other run."),
    ("base", "device"): mark("{share:ratio} of the base's device operator time has no match in the other run."),
    ("base", "step"): mark("{share:ratio} of the base's wall-clock time has no match in the other run."),
    ("other", "cpu"): mark("{share:ratio} of the other run's host operator time has no match in the base."),
    ("other", "device"): mark("{share:ratio} of the other run's device operator time has no match in the base."),
    ("other", "step"): mark("{share:ratio} of the other run's wall-clock time has no match in the base."),
}
_ENOUGH_CAPTURES: Final = 3
"""Number of captures of each side that is enough to measure the noise between processes."""
_COMPARABLE: Final = 0.5
"""Below this matched share of the operator time, two runs are barely comparable."""
_NEARLY_ALL: Final = 0.9995
"""Above this matched share, the unmatched share is not mentioned, because it would round to 0.0 %."""


def headline(
    result: Pair, matched_share: Mapping[str, Mapping[str, float | None]], causes: Sequence[Message] = ()
) -> tuple[Message, ...]:
    """Return the sentences of the summary, which include ``causes``. The most important sentence comes first."""
    steps, hints = result.steps, list[Message]()
    sentences = [_gate(result.outcomes)] if result.outcomes else []
    if steps is None:
        sentences.append(message("At least one run has no steps, so the whole recordings are compared."))
    else:
        sentences.append(step_sentence(steps))
        base, other = (whole.meta.timed_steps.unprofiled_ns for whole in result.whole)
        if base and other:
            text = mark("Without the profiler, a step takes {other:ns} instead of {base:ns}.")
            hints.append(message(text, base=base, other=other))
        unsure = steps.verdict in (statistics.NO_DIFFERENCE, *statistics.PERHAPS) and steps.difference
        if unsure and max(steps.captures) < 2:
            text = mark(
                "One capture per side does not show how much equal runs differ; {share:ratio} is assumed. To "
                "detect smaller differences, give several captures per side, or give the noise with --noise."
            )
            hints.append(message(text, share=result.between))
    if result.normalised is not None:
        work, unit = result.normalised.statistics, message(result.normalised.name)
        if work.difference:
            text = mark("Per {unit}: {change} ({verdict}).")
            hints.append(message(text, unit=unit, change=_change(work), verdict=message(work.verdict)))
        else:
            hints.append(message("Per {unit}: {time:ns} in both runs.", unit=unit, time=work.base))

    shares = {(side, place): share for side, places in matched_share.items() for place, share in places.items()}
    known = {key: share for key, share in shares.items() if share is not None}
    least = min((share for (_, place), share in known.items() if place != "step"), default=1.0)
    sentences += same_recording(result)
    if least < _COMPARABLE:
        text = mark("The runs are barely comparable: {share:ratio} of one run's operator time has no counterpart.")
        sentences.append(message(text, share=1 - least))
    if known and all(share == 1 for share in known.values()):
        hints.append(message("All operator time has a counterpart."))
    hints += [message(_UNMATCHED[key], share=1 - share) for key, share in known.items() if share < _NEARLY_ALL]
    return (*sentences, *causes, *hints)


def _gate(outcomes: Sequence[Outcome]) -> Message:
    failed, unknown, unsure = (
        [outcome.condition.text for outcome in outcomes if outcome.result == result]
        for result in (FAILED, CANNOT_TELL, WITHIN_NOISE)
    )
    result = message("cannot tell") if unknown else message("passed")
    if failed:
        text = mark("{count} of {all} conditions failed: {conditions:parts}")
        result = message(text, count=len(failed), all=len(outcomes), conditions=failed)
    if unsure:
        text = mark("{result}; limit exceeded, but not beyond noise: {conditions:parts}")
        result = message(text, result=result, conditions=unsure)
    if unknown:
        text = mark("{result}; limit exceeded, but too few steps or captures to rule out noise: {conditions:parts}")
        result = message(text, result=result, conditions=unknown)
    return message("Gate: {result}.", result=result)


def same_recording(result: Pair) -> Iterator[Message]:
    """Yield a warning if base and other hold the same recording or a copy of it."""
    if result.twice:
        yield message("Base and other hold the same recording: {sources:list}.", sources=list(result.twice))


def step_sentence(steps: statistics.SampleStatistics) -> Message:
    if not steps.difference:
        return message("The median recorded step takes {time:ns} in both runs.", time=steps.base)
    interval = quickest = advice = None
    if steps.low is not None and steps.high is not None:
        interval = message(" (95% interval of the difference {low:+ns} to {high:+ns})", low=steps.low, high=steps.high)
    words = {"verdict": message(_VERDICTS[steps.verdict]), "change": _change(steps), "interval": interval}
    if steps.noise is None:
        return message("{verdict}: the median recorded step takes {change}{interval}.", **words)
    above = steps.verdict in (statistics.NO_DIFFERENCE, *statistics.PERHAPS) and abs(steps.difference) > steps.noise
    if above and steps.quickest is not None:  # The fastest steps differ too little for a sure verdict.
        quickest = message(", and the fastest steps differ by only {time:ns}", time=abs(steps.quickest))
    if steps.verdict in statistics.PERHAPS:
        few = min(steps.captures) < _ENOUGH_CAPTURES
        advice = (
            message("; record three captures of each run") if few else message("; record more captures of each run")
        )
    return message(
        "{verdict}: the median recorded step takes {change}{interval}; equal runs may differ by "
        "{noise:ns}{quickest}{advice}.",
        **words,
        noise=steps.noise,
        quickest=quickest,
        advice=advice,
    )


def _change(steps: statistics.SampleStatistics) -> Message:
    if steps.change_ratio is None:
        return message("{other:ns} instead of {base:ns}", other=steps.other, base=steps.base)
    values = {"other": steps.other, "base": steps.base, "share": abs(steps.change_ratio)}
    if steps.difference > 0:
        return message("{other:ns} instead of {base:ns}, {share:ratio} longer", **values)
    return message("{other:ns} instead of {base:ns}, {share:ratio} shorter", **values)


def warnings(result: Pair) -> tuple[Message, ...]:
    """Return warnings of differences that make runs less comparable: in devices, profiler options, amounts of work."""
    sentences, normalised = [], result.normalised
    if normalised is not None and normalised.base.amount != normalised.other.amount:
        origins = dict.fromkeys((normalised.base.origin, normalised.other.origin))
        sentences.append(
            message(
                "The steps do different amounts of work: {base:count} {unit}s in base and {other:count} {unit}s in "
                "other ({origin:and}).",
                base=float(normalised.base.amount),
                other=float(normalised.other.amount),
                unit=message(normalised.unit),
                origin=[message(_ORIGINS[origin]) for origin in origins],
            )
        )
    if comparison.different_devices(result.whole):
        base, other = (", ".join(comparison.device_names(trace)) for trace in result.whole)
        text = mark("Different devices: {base} and {other}. The table devices lists their peak rates.")
        sentences.append(message(text, base=base, other=other))
    # Profiler options cost time, mostly on the host. Their names can only be compared within one framework.
    metas = [trace.meta for trace in result.whole]
    options = [{name for name, value in meta.options.items() if value is True} for meta in metas]
    comparable = metas[0].framework == metas[1].framework and all(meta.options for meta in metas)
    if comparable and options[0] != options[1]:
        alone = [", ".join(sorted(mine - theirs)) for mine, theirs in (options, options[::-1])]
        parts = [message(text, names=names) for text, names in zip(_ALONE, alone, strict=True) if names]
        text = mark("Different profiler options, which may slow down one run: {options:parts}.")
        sentences.append(message(text, options=parts))
    return tuple(sentences)
