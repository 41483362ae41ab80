"""What does an edit change in the recording, in words? One sentence a kind of edit, and the events that it changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import singledispatch
from typing import Any, Final

import numpy as np

from perfkit_core import intervals
from perfkit_core.advice import words
from perfkit_core.renderers.shortening import cut
from perfkit_core.replay.edits.batching import Batch
from perfkit_core.replay.edits.concurrency import Load, Overlap
from perfkit_core.replay.edits.durations import Insert, Scale
from perfkit_core.replay.edits.gaps import Shorten
from perfkit_core.replay.edits.placement import Move
from perfkit_core.replay.edits.removal import Remove
from perfkit_core.replay.edits.unblocking import Unblock
from perfkit_core.replay.edits.uncertain import InCases
from perfkit_core.replay.quantity import Case, Number, Quantity, value
from perfkit_core.trace import Trace

_CASES: Final[Mapping[Case, str]] = {Case.SHORT: "best", Case.LIKELY: "likely", Case.LONG: "worst"}
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
    return ", ".join(parts)


def _their_time(factor: Number) -> str:
    known = not isinstance(factor, Quantity) or factor.low == factor.high
    likely = "" if known else f" (likely {words.value('', value(factor, Case.LIKELY))})"
    return f"{words.span('_factor', factor)} their time{likely}"


@change.register
def _(edit: Scale) -> str:
    where = {(True, False): " on the host", (False, True): " on the device"}.get((edit.host, edit.device), "")
    inside = ", with all inside them" if edit.below else ""
    return f"take {_their_time(edit.factor)}{where}{inside}"


@change.register
def _(edit: Remove) -> str:
    return f"do not take place{', nor what is inside them' if edit.below else ''}"


@change.register
def _(edit: Insert) -> str:
    added = (("host", edit.host_ns), ("device", edit.device_ns))
    said = [f"{words.likely('_ns', dur)} longer on the {where}" for where, dur in added if dur != 0]
    return f"take {' and '.join(said) or 'no longer'}"


@change.register
def _(edit: Load) -> str:
    made = "" if edit.batch_ns is None else f", which make a batch in {words.likely('_ns', edit.batch_ns)}"
    return (
        f"get batches from {words.likely('workers', edit.workers)} worker processes{made}; a batch is handed over in "
        f"{words.likely('_ns', edit.handover_ns)}; {edit.ahead} batches ahead for each worker"
    )


@change.register
def _(edit: Overlap) -> str:
    return f"pass in another thread, in {_their_time(edit.factor)}"


@change.register
def _(edit: Batch) -> str:
    launches = 1 if edit.group is None else len(np.unique(edit.group))
    each = "" if launches == 1 else " each"
    return (
        f"become {words.value('launches', launches)} launch{'es' * (launches != 1)} of "
        f"{words.likely('_ns', edit.host_ns)}{each}, with at most {words.likely('_ns', edit.gap_ns)} between their work"
    )


@change.register
def _(edit: Shorten) -> str:
    return (
        f"in {len(edit.gaps[0]):,} gaps, {words.value('_ns', intervals.length(edit.gaps))} together, host threads take "
        f"{_their_time(edit.factor)}"
    )


@change.register
def _(edit: Move) -> str:
    gone = 0 if edit.copies_gone is None else len(edit.copies_gone)
    parts = [f"run on the host: each takes {words.likely('_ns', edit.host_ns)} there"]
    if not edit.to_host:
        launch, work = words.likely("_ns", edit.host_ns), words.likely("_ns", edit.device_ns)
        parts = [f"run on the device: each takes {launch} on the host and {work} on the device"]
    parts += [f"{gone} calls of copies and waits do not take place"] if gone else []
    added = f"{edit.copies_added} copies of {words.likely('_ns', edit.copy_ns)} before each"
    return "; ".join(parts + ([added] if edit.copies_added else []))


@change.register
def _(edit: Unblock) -> str:
    most = "" if edit.most_ns is None else f", and take at most {words.likely('_ns', edit.most_ns)}"
    return f"wait for no device work{most}"


@change.register
def _(edit: InCases) -> str:
    cases = " and ".join(_CASES[case] for case in edit.cases)
    return f"{change(edit.change)} (in the {cases} case{'s' * (len(edit.cases) > 1)} alone)"


def said(edit: Any, trace: Trace) -> str:
    """``6 × next: take 0–0.5 × their time``: which events, and what becomes of them."""
    found = events(edit, trace)
    return f"{found}{': ' if found else ''}{change(edit)}"


def events(edit: Any, trace: Trace) -> str:
    """How many events an edit changes, and their names (``6 × next``); "" where it has none of its own."""
    inner = edit.change if isinstance(edit, InCases) else edit
    rows = getattr(inner, "rows", None)
    if rows is None or not len(rows):
        return ""
    names = trace.codes("name")
    codes, counts = np.unique(names.codes[rows], return_counts=True)
    most = np.argsort(-counts, kind="stable")
    called = [cut(names.values[code], _LONGEST) if code >= 0 else "without a name" for code in codes]
    told = [f"{counts[at]:,} × {called[at]}" for at in most]
    rest = int(counts[most[_NAMES:]].sum())
    return ", ".join(told[:_NAMES]) + (f" and {rest:,} of other names" if rest else "")
