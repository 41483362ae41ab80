"""Facts about a profile for the head of a report. Unknown facts are left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from perfkit_core.base.language.messages import mark, message, say
from perfkit_core.trace.model.meta import Device, Finding, TraceMeta
from perfkit_core.trace.model.report_data import Fact, Source
from perfkit_core.trace.model.timed_steps import NOTABLE, TimedSteps
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.select import step_numbers
from perfkit_core.views.steps import inferred_steps


def source(trace: Trace) -> Source:
    """Return the source of a report for a trace: file name, path, findings and facts."""
    return described(trace.meta, trace.quality, step_numbers(trace), trace.timed_steps)


def described(
    meta: TraceMeta,
    quality: Sequence[Finding],
    steps: Sequence[int],
    timed: TimedSteps,
    chosen: Sequence[int] | None = None,
) -> Source:
    """Return the source of a report. ``steps``: recorded step numbers. ``timed``: the steps that a clock timed.
    ``chosen``: requested step numbers, or None."""
    entries = facts(meta) | _timed(timed)
    count = len(steps)
    if count and chosen is not None:
        numbers = sorted(set(chosen))
        shown = _numbers_or_range(numbers)
        if len(numbers) == 1:
            text = say("step {number} (recorded steps: {count})", number=shown, count=count)
        else:
            text = say("steps {numbers} (recorded steps: {count})", numbers=shown, count=count)
        entries[mark("Steps")] = Fact(say("{numbers} (recorded steps: {count})", numbers=shown, count=count), text)
    elif count:
        text = say("1 step") if count == 1 else say("{count} steps", count=count)
        inferred = next((finding for finding in quality if finding.code == inferred_steps.CODE), None)
        entries[mark("Steps")] = Fact(str(count), text if inferred is None else inferred.message)
    elif meta.window_ns is not None:
        entries[mark("Length")] = Fact(say("{time:ns} recorded", time=meta.window_ns[1] - meta.window_ns[0]))
    for finding in quality:
        if finding.code == inferred_steps.SET_APART:
            entries[mark("Set apart")] = Fact(finding.message)
    options = ", ".join(
        name if value is True else f"{name}={value}"
        for name, value in meta.options.items()
        if value is not False and isinstance(value, (str, int, float))
    )
    if options:
        entries[mark("Options")] = Fact(options, say("options {names}", names=options))
    return Source(Path(meta.source).name or meta.source, meta.source, tuple(quality), entries)


def facts(meta: TraceMeta) -> dict[str, Fact]:
    """Return the facts Framework, Devices, Ranks and Recorded. Unknown facts are left out."""
    ranks = Fact("")
    if meta.ranks:
        numbers = _numbers_or_range(meta.ranks)
        text = say("ranks {numbers}", numbers=numbers) if meta.ranks[1:] else say("rank {number}", number=numbers)
        ranks = Fact(numbers, text)
        if meta.world_size:
            ranks = Fact(*(say("{ranks} of {count}", ranks=text, count=meta.world_size) for text in ranks))
    at, recorded = recorded_at_ns(meta), ""
    if at is not None:
        recorded = datetime.fromtimestamp(at // 1_000_000_000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    entries = {
        mark("Framework"): Fact(framework(meta)),
        mark("Devices"): Fact(devices(meta.devices)),
        mark("Ranks"): ranks,
        mark("Recorded"): Fact(recorded),
    }
    return {name: fact for name, fact in entries.items() if fact.value}


def _timed(timed: TimedSteps) -> dict[str, Fact]:
    """Return facts about the steps that a clock timed: what recording added to a step, and what other processes did."""
    usual, recorded = timed.time(timed.unprofiled()), timed.time(timed.recorded())
    entries = {}
    if timed.preempted > NOTABLE:
        value = say("{share:ratio} of the recorded time", share=timed.preempted)
        entries[mark("Waits for a processor")] = Fact(value, say("waits for a processor: {value}", value=value))
    if usual is None or not usual.wall_ns:
        return entries
    value = say("{time:ns}", time=usual.wall_ns)
    if recorded is not None and recorded.wall_ns:
        waits = usual.waits or recorded.waits
        share = recorded.wall_ns / usual.wall_ns - 1
        how = message("recording adds {share:ratio}", share=share)
        if share < 0:
            how = message("recorded steps are {share:ratio} shorter", share=-share)
        if waits:
            how = message(
                "without waits for a processor {time:ns}, {recorded:ns} when recorded",
                time=usual.less_waits_ns, recorded=recorded.less_waits_ns,
            )  # fmt: skip
        value = say("{time:ns} ({how})", time=usual.wall_ns, how=how)
    entries[mark("Unprofiled step")] = Fact(value, say("unprofiled step {value}", value=value))
    return entries


def framework(meta: TraceMeta) -> str:
    return " ".join(part for part in (meta.framework, meta.framework_version) if part)


def _numbers_or_range(numbers: Sequence[int]) -> str:
    """Return ascending numbers as text. Three or more numbers without a gap are a range: ``0–7``."""
    consecutive = len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1
    return f"{numbers[0]}–{numbers[-1]}" if consecutive else ", ".join(map(str, numbers))


def devices(recorded: tuple[Device, ...]) -> str:
    """Return the product names of devices with their counts, such as ``8 × NVIDIA H100``."""
    counts = Counter(device.name or device.id for device in recorded)
    return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in counts.items())


def recorded_at_ns(meta: TraceMeta) -> int | None:
    """Return the start of the recording in ns since 1970, or None if unknown."""
    if meta.recorded_at_ns is None and meta.window_ns is not None and meta.clock == "epoch":
        return meta.window_ns[0]
    return meta.recorded_at_ns
