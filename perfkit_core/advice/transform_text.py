"""What does an edit change in the recording, in words? One sentence a kind of edit, and the events that it changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import singledispatch
from typing import Any, Final

import numpy as np

from perfkit_core.advice import wording
from perfkit_core.advice import wording as words
from perfkit_core.algorithms import intervals
from perfkit_core.language.messages import mark, say
from perfkit_core.language.units import format_count
from perfkit_core.model.trace import Trace
from perfkit_core.renderers.cells import cut
from perfkit_core.replay.quantity import Case, Number, Quantity, value
from perfkit_core.replay.transforms.batching import Batch
from perfkit_core.replay.transforms.concurrency import Load, Overlap
from perfkit_core.replay.transforms.durations import Insert, Remove, Scale, Shorten, Unblock
from perfkit_core.replay.transforms.placement import Move
from perfkit_core.replay.transforms.transform import InCases

_CASES: Final[Mapping[Case, str]] = {
    Case.SHORT: mark("best"),
    Case.LIKELY: mark("likely"),
    Case.LONG: mark("worst"),
}
_LONGEST: Final = 80
"""Characters of the name of an event."""
_NAMES: Final = 2
"""Names of events that are said; the JSON has the rows."""


@singledispatch
def change(edit: Any) -> str:
    """What becomes of the events. Of a kind of edit that is not known here: its name and its numbers."""
    parts = [type(edit).__name__]
    if is_dataclass(edit):
        numbers = {one.name: getattr(edit, one.name) for one in fields(edit)}
        parts += [f"{words.name(key)} {words.value(key, of)}" for key, of in numbers.items() if key != "rows"]
    return say(", ").join(parts)


def _their_time(factor: Number) -> str:
    span = words.span("_factor", factor)
    if not isinstance(factor, Quantity) or factor.low == factor.high:
        return say("{factor} their time", factor=span)
    likely = words.value("", value(factor, Case.LIKELY))
    return say("{factor} their time (likely {likely})", factor=span, likely=likely)


@change.register
def _(edit: Scale) -> str:
    where = {(True, False): say(" on the host"), (False, True): say(" on the device")}
    inside = say(", with all inside them") if edit.below else ""
    told = say("take {time}{where}", time=_their_time(edit.factor), where=where.get((edit.host, edit.device), ""))
    return f"{told}{inside}"


@change.register
def _(edit: Remove) -> str:
    return say("do not take place, nor what is inside them") if edit.below else say("do not take place")


@change.register
def _(edit: Insert) -> str:
    told = []
    if edit.host_ns != 0:
        told.append(say("{time} longer on the host", time=words.likely("_ns", edit.host_ns)))
    if edit.device_ns != 0:
        told.append(say("{time} longer on the device", time=words.likely("_ns", edit.device_ns)))
    return say("take {what}", what=wording.both(told)) if told else say("take no longer")


@change.register
def _(edit: Load) -> str:
    made = ""
    if edit.batch_ns is not None:
        made = say(", which make a batch in {time}", time=words.likely("_ns", edit.batch_ns))
    return say(
        "get batches from {workers} worker processes{made}; a batch is handed over in {time}; {ahead} batches ahead "
        "for each worker",
        workers=words.likely("workers", edit.workers),
        made=made,
        time=words.likely("_ns", edit.handover_ns),
        ahead=edit.ahead,
    )


@change.register
def _(edit: Overlap) -> str:
    return say("pass in another thread, in {time}", time=_their_time(edit.factor))


@change.register
def _(edit: Batch) -> str:
    launches = 1 if edit.group is None else len(np.unique(edit.group))
    text = mark("become {count} launches of {time} each, with at most {gap} between their work")
    if launches == 1:
        text = mark("become {count} launch of {time}, with at most {gap} between their work")
    count, time = words.value("launches", launches), words.likely("_ns", edit.host_ns)
    return say(text, count=count, time=time, gap=words.likely("_ns", edit.gap_ns))


@change.register
def _(edit: Shorten) -> str:
    return say(
        "in {count} gaps, {total} together, host threads take {time}",
        count=format_count(sum(len(gaps[0]) for gaps in edit.gaps.values())),
        total=words.value("_ns", sum(map(intervals.length, edit.gaps.values()))),
        time=_their_time(edit.factor),
    )


@change.register
def _(edit: Move) -> str:
    gone = 0 if edit.copies_gone is None else len(edit.copies_gone)
    parts = [say("run on the host: each takes {time} there", time=words.likely("_ns", edit.host_ns))]
    if not edit.to_host:
        launch, work = words.likely("_ns", edit.host_ns), words.likely("_ns", edit.device_ns)
        text = mark("run on the device: each takes {launch} on the host and {work} on the device")
        parts = [say(text, launch=launch, work=work)]
    if gone:
        parts.append(say("{count} calls of copies and waits do not take place", count=gone))
    if edit.copies_added:
        time = words.likely("_ns", edit.copy_ns)
        parts.append(say("{count} copies of {time} before each", count=edit.copies_added, time=time))
    return say("; ").join(parts)


@change.register
def _(edit: Unblock) -> str:
    if edit.most_ns is None:
        return say("wait for no device work")
    return say("wait for no device work, and take at most {time}", time=words.likely("_ns", edit.most_ns))


@change.register
def _(edit: InCases) -> str:
    cases = wording.both([say(_CASES[case]) for case in edit.cases])
    if len(edit.cases) > 1:
        return say("{change} (in the {cases} cases alone)", change=change(edit.change), cases=cases)
    return say("{change} (in the {case} case alone)", change=change(edit.change), case=cases)


def said(edit: Any, trace: Trace) -> str:
    """``6 × next: take 0–0.5 × their time``: which events, and what becomes of them."""
    found = events(edit, trace)
    return f"{found}{say(': ') if found else ''}{change(edit)}"


def events(edit: Any, trace: Trace) -> str:
    """How many events an edit changes, and their names (``6 × next``); "" where it has none of its own."""
    inner = edit.change if isinstance(edit, InCases) else edit
    rows = getattr(inner, "rows", None)
    if rows is None or not len(rows):
        return ""
    names = trace.codes("name")
    codes, counts = np.unique(names.codes[rows], return_counts=True)
    most = np.argsort(-counts, kind="stable")
    called = [cut(names.values[code], _LONGEST) if code >= 0 else say("without a name") for code in codes]
    told = [f"{format_count(counts[at])} × {called[at]}" for at in most]
    rest = int(counts[most[_NAMES:]].sum())
    first = say(", ").join(told[:_NAMES])
    return say("{names} and {count} of other names", names=first, count=format_count(rest)) if rest else first
