"""The head of a report: what was profiled, in a few words each. What is not known is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from perfkit_core.language.messages import mark, say
from perfkit_core.model.meta import Device, Finding, TraceMeta
from perfkit_core.model.trace import Trace
from perfkit_core.report.model import Source
from perfkit_core.views.select import step_numbers


def source(trace: Trace) -> Source:
    """The profile behind a report: its file's name as label, where it is, its findings and head facts."""
    return described(trace.meta, trace.quality, step_numbers(trace))


def described(
    meta: TraceMeta, quality: Sequence[Finding], steps: Sequence[int], chosen: Sequence[int] | None = None
) -> Source:
    """The same for a profile of which only this is known; ``steps``: the numbers of those recorded; ``chosen``: of
    those that were asked for (None: none were)."""
    told = {mark("Steps"): _steps(len(steps), chosen)} if len(steps) else _length(meta)
    known = facts(meta) | told | _options(meta)
    return Source(Path(meta.source).name or meta.source, meta.source, tuple(quality), known)


def facts(meta: TraceMeta) -> dict[str, str]:
    """Framework, Devices, Ranks, Recorded: those that are known, each readable without its name."""
    known = {
        mark("Framework"): " ".join(part for part in (meta.framework, meta.framework_version) if part),
        mark("Devices"): devices(meta.devices),
        mark("Ranks"): _ranks(meta),
        mark("Recorded"): _recorded(meta),
    }
    return {name: text for name, text in known.items() if text}


def _steps(count: int, chosen: Sequence[int] | None) -> str:
    if chosen is None:
        return say("1 step") if count == 1 else say("{count} steps", count=count)
    numbers = sorted(set(chosen))
    if len(numbers) == 1:
        return say("step {number} ({count} recorded)", number=numbers[0], count=count)
    return say("steps {numbers} ({count} recorded)", numbers=_listed(numbers), count=count)


def _listed(numbers: Sequence[int]) -> str:
    """Ascending numbers, three and more in a row as a range."""
    consecutive = len(numbers) > 2 and list(numbers) == list(range(numbers[0], numbers[-1] + 1))
    return f"{numbers[0]}–{numbers[-1]}" if consecutive else ", ".join(map(str, numbers))


def _length(meta: TraceMeta) -> dict[str, str]:
    """Without steps, how long the recording lasts is the only time there is."""
    if meta.window_ns is None:
        return {}
    start, end = meta.window_ns
    return {mark("Length"): say("{time:ns} recorded", time=end - start)}


def _options(meta: TraceMeta) -> dict[str, str]:
    """Of the profiler: what was switched on, and what was set."""
    known = [name if value is True else f"{name}={value}" for name, value in meta.options.items() if _is_set(value)]
    return {mark("Options"): say("options {names}", names=", ".join(known))} if known else {}


def _is_set(value: object) -> bool:
    return value is True or (value is not False and isinstance(value, (str, int, float)))


def devices(found: tuple[Device, ...]) -> str:
    """Products of the devices with their number, "" when none are known."""
    counted = Counter(device.name or device.id for device in found)
    return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in counted.items())


def _ranks(meta: TraceMeta) -> str:
    ranks = meta.ranks
    if not ranks:
        return ""
    text = _listed(ranks)
    named = say("ranks {numbers}", numbers=text) if len(ranks) > 1 else say("rank {number}", number=text)
    return say("{ranks} of {count}", ranks=named, count=meta.world_size) if meta.world_size else named


def recorded_at_ns(meta: TraceMeta) -> int | None:
    """When it was recorded, ns since 1970; None where neither the recorder nor the clock tells."""
    if meta.recorded_at_ns is None and meta.window_ns is not None and meta.clock == "epoch":
        return meta.window_ns[0]
    return meta.recorded_at_ns


def _recorded(meta: TraceMeta) -> str:
    at = recorded_at_ns(meta)
    if at is None:
        return ""
    return datetime.fromtimestamp(at // 1_000_000_000, UTC).strftime("%Y-%m-%d %H:%M UTC")
