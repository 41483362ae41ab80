"""The summary of a comparison in sentences: the verdict with its certainty, other differences, the unmatched share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Final

import pandas as pd

from perfkit_core.base.language.messages import Message, mark, message
from perfkit_core.base.language.units import format_count, format_duration, format_ratio
from perfkit_core.compare import comparison, statistics
from perfkit_core.compare.align.align import UNMATCHED, Alignment
from perfkit_core.compare.gate.conditions import CANNOT_TELL, FAILED, WITHIN_NOISE, Outcome
from perfkit_core.compare.noise import GIVEN, MEASURED, Between
from perfkit_core.compare.pair import FLOP, Pair
from perfkit_core.compare.windows import is_cut_off, median_ns, on_device_clock
from perfkit_core.trace.assembly.lost_records import CODES
from perfkit_core.trace.model.meta import may_lack_work
from perfkit_core.trace.model.timed_steps import NOTABLE
from perfkit_core.views.steps.step_rows import step_rows

RECORDED_STEP: Final = message("the median recorded step takes")
_SURE: Final = {
    statistics.SLOWER: mark("Slower: {subject} {change}{interval}; {noise}."),
    statistics.FASTER: mark("Faster: {subject} {change}{interval}; {noise}."),
}
_UNSURE: Final = {
    statistics.PERHAPS_SLOWER: mark("Possibly slower: {subject} {change}{interval}{reason}; {advice}."),
    statistics.PERHAPS_FASTER: mark("Possibly faster: {subject} {change}{interval}{reason}; {advice}."),
    statistics.NO_DIFFERENCE: mark("Cannot tell: {subject} {change}{interval}{reason}; {advice}."),
}
_ORIGINS: Final = {
    "given": mark("as given"),
    "recorded": mark("as recorded"),
    "shapes": mark("inferred from operator shapes"),
}
_ALONE: Final = (mark("{names} in base only"), mark("{names} in other only"))
_UNMATCHED: Final = {
    "base": mark("The other run has no match for {parts:and} of the base."),
    "other": mark("The base has no match for {parts:and} of the other run."),
}
_TIMES: Final = {
    "cpu": mark("{share:ratio} of the host operator time{operators}"),
    "device": mark("{share:ratio} of the device operator time{operators}"),
    "step": mark("{share:ratio} of the wall-clock time"),
}
_LOST: Final = (mark("{share:ratio} (base)"), mark("{share:ratio} (other)"))
_NAMED, _NAMED_UNMATCHED = 3, 2
"""Number of operators without a match that are named."""
_LONGEST: Final = 40
"""Maximum number of characters of an operator's name in a sentence."""
_LONGEST_KERNEL: Final = 60
_NAMESPACES: Final = re.compile(r"^void |\(anonymous namespace\)::|\b\w+::")
_ENOUGH_CAPTURES: Final = 3
"""Number of captures of each side that is enough to measure the noise between processes."""
_SMALL: Final = 0.05
"""A larger change within noise is reported as "cannot tell", not as "no difference found"."""
_COMPARABLE, _NEARLY_CONTAINED = 0.5, 0.9
"""Below the first matched share of the operator time of one run, and the second one of the other run, two runs are
barely comparable."""
_NEARLY_ALL: Final = 0.9995
"""Above this matched share, the unmatched share is not mentioned, because it would round to 0.0%."""


def headline(result: Pair, alignment: Alignment, causes: Sequence[Message] = ()) -> tuple[Message, ...]:
    """Return the sentences of the summary, which include ``causes``. The most important sentence comes first."""
    steps, hints = result.steps, list[Message]()
    sentences = [_gate(result.outcomes)] if result.outcomes else []
    sentences += _work(result)
    if steps is None:
        sentences += _without_steps(result, alignment)
    else:
        sentences.append(step_sentence(steps, result.between))
        sentences += _on_host(result)
        sentences += _lost(result)
        base, other = (trace.timed_steps.time(trace.timed_steps.unprofiled()) for trace in result.traces)
        if base and other:
            waits = None
            if base.waits or other.waits:
                text = mark(" ({other:ns} instead of {base:ns} without waits for a processor)")
                waits = message(text, base=base.less_waits_ns, other=other.less_waits_ns)
            values = {"base": base.wall_ns, "other": other.wall_ns, "waits": waits}
            if (other.wall_ns - base.wall_ns) * steps.difference < 0:
                text = mark("In contrast, without the profiler, a step takes {other:ns} instead of {base:ns}{waits}.")
                sentences.append(message(text, **values))
            else:
                text = mark("Without the profiler, a step takes {other:ns} instead of {base:ns}{waits}.")
                hints.append(message(text, **values))
    if result.normalised is not None:
        work, unit = result.normalised.statistics, message(result.normalised.name)
        if work.difference:
            text = mark("Per {unit}: {change} ({verdict}).")
            verdict = message(WITHIN_NOISE if work.verdict == statistics.NO_DIFFERENCE else work.verdict)
            hints.append(message(text, unit=unit, change=_change(work), verdict=verdict))
        else:
            hints.append(message("Per {unit}: {time:ns} in both runs.", unit=unit, time=work.base))

    if is_incomplete(result):
        sentences.append(message("Device work was not recorded completely, so the cause of the difference is unknown."))
        causes = ()

    shares = {(side, time): share for side, places in alignment.matched.items() for time, share in places.items()}
    matched = {key: share for key, share in shares.items() if share is not None}
    least = min((share for (_, time), share in matched.items() if time != "step"), default=1.0)
    # A run that does nearly all work of the other run, and more, is comparable.
    of_time = ([matched[side, time] for side in _UNMATCHED if (side, time) in matched] for time in ("cpu", "device"))
    unlike = any(min(both) < _COMPARABLE and max(both) < _NEARLY_CONTAINED for both in of_time if both)
    sentences += same_recording(result)
    if unlike:
        text = mark("The runs are barely comparable: {share:ratio} of one run's operator time has no counterpart.")
        sentences.append(message(text, share=1 - least))
        return (*sentences, *hints)
    if matched and all(share == 1 for share in matched.values()):
        hints.append(message("All operator time has a counterpart."))
    for side, text in _UNMATCHED.items():
        unmatched = {time: 1 - matched.get((side, time), 1.0) for time in _TIMES}
        named = {time: _unmatched(alignment, side, time) for time in ("cpu", "device")}
        parts = [
            message(_TIMES[time], share=share, operators=named.get(time))
            for time, share in unmatched.items() if share > 1 - _NEARLY_ALL
        ]  # fmt: skip
        hints += [message(text, parts=parts)] if parts else []
    return (*sentences, *causes, *hints)


def is_incomplete(result: Pair) -> bool:
    """Return whether a run lacks device work that was not recorded or not interpreted."""
    quality = [finding for trace in result.traces for finding in trace.quality]
    lost = may_lack_work(quality) is not None or any(finding.code in CODES for finding in quality)
    return lost or any(map(is_cut_off, result.traces))


def _work(result: Pair) -> Iterator[Message]:
    """Yield how the work of a step differs, if it does."""
    normalised = result.normalised
    if normalised is None or normalised.base.amount == normalised.other.amount:
        return
    origins = dict.fromkeys((normalised.base.origin, normalised.other.origin))
    scale = Fraction(1, 10**9 if normalised.unit == FLOP else 1)
    base, other = (float(work.amount * scale) for work in (normalised.base, normalised.other))
    yield message(
        "The steps do different amounts of work: {base:count} {unit}s in base and {other:count} {unit}s in other "
        "({origin:and}).",
        base=base,
        other=other,
        unit=message("GFLOP") if normalised.unit == FLOP else message(normalised.unit),
        origin=[message(_ORIGINS[origin]) for origin in origins],
    )


def _without_steps(result: Pair, alignment: Alignment) -> Iterator[Message]:
    """Yield how the time per call differs if a run has no steps, with how often a call begins."""
    if result.per_call is None:
        yield message("Cannot tell: no step is complete in both runs, and the runs repeat nothing evenly.")
        base_ns, other_ns = (window.typical_ns for window in alignment.windows)
        if base_ns and other_ns:
            text = mark("The recordings take {other:ns} instead of {base:ns}, and may hold different amounts of work.")
            yield message(text, base=base_ns, other=other_ns)
        return
    unit, calls = result.per_call
    fewer = unit.per_s[1] < unit.per_s[0]
    text = mark(
        "{share:ratio} {fewer} calls a second: {name} begins {other} times a second on a rank, not {base} times."
    )
    share = abs(unit.per_s[1] / unit.per_s[0] - 1)
    base, other = (f"{rate:.4g}" for rate in unit.per_s)
    if calls.verdict != statistics.NO_DIFFERENCE:
        more = message("fewer") if fewer else message("more")
        yield message(text, name=bare_kernel(unit.name), base=base, other=other, share=share, fewer=more)
    subject = message("the mean time from one call of {name} to the next is", name=bare_kernel(unit.name))
    yield step_sentence(calls, result.between, subject)
    yield message("No step is complete in both runs, so the calls of this kernel, which both repeat, are compared.")
    counts = unit.calls.assign(change=unit.calls["other"] / unit.calls["base"].where(unit.calls["base"] > 0) - 1)
    largest = counts["change"].abs().sort_values(ascending=False, kind="stable").index[:_NAMED]
    changed = [
        message(
            "{name} {base} → {other}{change}",
            name=bare_kernel(name),
            base=format_count(base),
            other=format_count(other),
            change="" if pd.isna(change) else f" ({format_ratio(change, signed=True)})",
        )
        for name, base, other, change in counts.loc[largest].itertuples(index=False)
    ]
    if changed:
        yield message("Calls for each call of it: {calls:parts}.", calls=changed)
    if unit.untold[0]:
        text = mark(
            "{count:count} of {all:count} kernels and operators are called too unevenly to compare how often they run."
        )
        yield message(text, count=unit.untold[0], all=unit.untold[1])


def bare_kernel(kernel: str, longest: int = _LONGEST_KERNEL) -> str:
    """Return the begin of the name of a kernel or an operator without its return type and namespaces."""
    name = _NAMESPACES.sub("", kernel)
    return name if len(name) <= longest else f"{name[:longest]}…"


def _on_host(result: Pair) -> Iterator[Message]:
    """Yield how long the steps take on the host if they are compared on the clock of the device."""
    if not all(map(on_device_clock, result.traces)):
        return
    base, other = (median_ns(trace.ints("dur_ns")[step_rows(trace)]) for trace in result.traces)
    text = mark(
        "A step ends when devices have finished its work, because the host only enqueues it: the host's part of the "
        "median step takes {other:ns} instead of {base:ns}."
    )
    yield message(text, base=base, other=other)


def _lost(result: Pair) -> Iterator[Message]:
    """Yield a warning if other processes delayed the steps of a run."""
    lost = [max(capture.preempted for capture in side) for side in result.captures]
    shares = [message(text, share=share) for text, share in zip(_LOST, lost, strict=True) if share > NOTABLE]
    if shares:
        text = mark("Other processes took {shares:and} of the recorded step time, so the step times are uncertain.")
        yield message(text, shares=shares)


def _unmatched(alignment: Alignment, side: str, place: str) -> Message | None:
    """Return the operators with most time on the host ("cpu") or on devices that only one run has, and their layers, or
    None if they have no names."""
    rows = alignment.rows
    rows = rows[(rows["level"] == UNMATCHED) & (rows[f"{side}_{place}_ns"] > 0)].dropna(subset="operator")
    time = rows[f"{side}_{place}_ns"]
    total = time.groupby(
        [rows["operator"].astype(str), rows["layer"].astype(str).where(rows["layer"].notna(), "")]
    ).sum()
    names = []
    for operator, layer in total.sort_values(ascending=False, kind="stable").index[:_NAMED_UNMATCHED]:
        name = bare_kernel(operator, _LONGEST)
        layer_name = layer.split(" ~ ")[-1 if side == "other" else 0].rpartition("/")[2]
        names.append(message("{operator} in {layer}", operator=name, layer=layer_name) if layer_name else name)
    return message(" (mainly {names:list})", names=names) if names else None


def _gate(outcomes: Sequence[Outcome]) -> Message:
    failed, unknown, unsure = (
        [outcome.condition.text for outcome in outcomes if outcome.result == result]
        for result in (FAILED, CANNOT_TELL, WITHIN_NOISE)
    )
    result = message("cannot tell") if unknown or unsure else message("passed")
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


def step_sentence(steps: statistics.SampleStatistics, between: Between, subject: Message = RECORDED_STEP) -> Message:
    """Return the verdict with the change, its interval, and how much equal runs may differ: measured or assumed.
    ``between`` is what is known of equal runs if each side has one capture. ``subject`` is what takes the time."""
    if not steps.difference:
        return message("No difference: {subject} {time:ns} in both runs.", subject=subject, time=steps.base)
    interval = None
    if steps.low is not None and steps.high is not None:
        ends = (max(ns, -steps.base) for ns in (steps.low, steps.high))  # a resampled base may be longer than the base
        low, high = (_amount(ns, steps.base, signed=True) for ns in ends)
        interval = message(" (95% interval of the change: {low} to {high})", low=low, high=high)
    words = {"change": _change(steps), "interval": interval, "subject": subject}
    if steps.low is None or steps.high is None or steps.noise is None:
        text = mark("Cannot tell: {subject} {change}{interval}; a single step cannot show the noise.")
        return message(text, **words)
    size = abs(steps.difference)
    text = mark("equal runs may differ by up to {amount}, {origin}")
    if max(steps.captures) < 2:
        text = mark("equal runs may differ by up to {amount}: the spread of the steps, and noise {origin}")
    noise = message(text, amount=_amount(steps.noise, steps.base), origin=_origin(steps, between))
    if steps.beyond_noise:
        return message(_SURE[steps.verdict], **words, noise=noise)
    if steps.verdict == statistics.NO_DIFFERENCE and size <= min(_SMALL * steps.base, steps.noise):
        text = mark("No difference found: {subject} {change}{interval}; {noise}.")
        return message(text, **words, noise=noise)
    reason = message(", but {noise}", noise=noise)
    if size > steps.noise and steps.low <= 0 <= steps.high:
        reason = message("; {noise}, but the interval includes 0", noise=noise)
    elif size > steps.noise and steps.quickest is not None:
        fastest = _amount(steps.quickest, steps.base, signed=True)
        text = mark(
            "; {noise}, and the fastest steps, which other processes disturb least, differ by no more than that "
            "({fastest})"
        )
        reason = message(text, noise=noise, fastest=fastest)
    few = min(steps.captures) < _ENOUGH_CAPTURES
    advice = message("record three captures of each run") if few else message("record more captures of each run")
    return message(_UNSURE[steps.verdict], **words, reason=reason, advice=advice)


def _origin(steps: statistics.SampleStatistics, between: Between) -> Message:
    if max(steps.captures) > 1:
        text = mark("measured between the captures ({base:count} of base, {other:count} of other)")
        return message(text, base=steps.captures[0], other=steps.captures[1])
    if between.origin == GIVEN:
        return message("given as {share:ratio}", share=between.ratio)
    if between.origin == MEASURED:
        return message("measured in {runs:count} equal runs on this machine", runs=between.runs)
    if between.device_busy is None:
        return message("assumed for single captures of work on the host")
    text = mark("assumed for single captures in which a device works for {share:ratio} of the steps")
    return message(text, share=between.device_busy)


def _amount(ns: int, base: int, signed: bool = False) -> str:
    """Return a time as a share of the base, or in its unit if the base is 0."""
    return format_ratio(ns / base, signed=signed) if base else format_duration(ns, signed=signed)


def _change(steps: statistics.SampleStatistics) -> Message:
    if steps.change_ratio is None:
        return message("{other:ns} instead of {base:ns}", other=steps.other, base=steps.base)
    values = {"other": steps.other, "base": steps.base, "share": abs(steps.change_ratio)}
    if steps.difference > 0:
        return message("{other:ns} instead of {base:ns}, {share:ratio} longer", **values)
    return message("{other:ns} instead of {base:ns}, {share:ratio} shorter", **values)


def warnings(result: Pair) -> tuple[Message, ...]:
    """Return warnings of differences that make runs less comparable: in devices and profiler options."""
    sentences = []
    if comparison.different_devices(result.traces):
        base, other = (", ".join(comparison.device_names(trace)) for trace in result.traces)
        text = mark("Different devices: {base} and {other}. The table devices lists their peak rates.")
        sentences.append(message(text, base=base, other=other))
    # Profiler options cost time, mostly on the host. Their names can only be compared within one framework.
    metas = [trace.meta for trace in result.traces]
    options = [{name for name, value in meta.options.items() if value is True} for meta in metas]
    comparable = metas[0].framework == metas[1].framework and all(meta.options for meta in metas)
    if comparable and options[0] != options[1]:
        alone = [", ".join(sorted(mine - theirs)) for mine, theirs in (options, options[::-1])]
        parts = [message(text, names=names) for text, names in zip(_ALONE, alone, strict=True) if names]
        text = mark("Different profiler options: {options:parts}.")
        sentences.append(message(text, options=parts))
    return tuple(sentences)
