"""Leaves of the attribution: exclusive time and calls by category, phase, layer, family, operator and event."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.algorithms import groupby
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, Codes, IntArray
from perfkit_core.compare.align.units import piece_phases, units
from perfkit_core.compare.slices import Slices, Windows, categories_of_events, slices
from perfkit_core.language.messages import mark
from perfkit_core.model.schema import (
    ANNOTATION,
    DATALOADER,
    DEVICE_WORK,
    MEMORY,
    OTHER,
    OVERHEAD,
    PYTHON,
    RUNTIME,
    SYNC,
)
from perfkit_core.model.trace import Trace
from perfkit_core.views.steps.activity import activities

OUTSIDE: Final = mark("(outside operators)")
UNLAUNCHED: Final = mark("(no launch recorded)")
NOTHING: Final = "(nothing recorded)"
NO_PHASE: Final = "(no phase)"
UNTIL_THE_END: Final = mark("(nothing recorded until the end)")
BEFORE: Final = "(nothing recorded before "
_KINDS: Final[Mapping[str, str]] = {
    DATALOADER: mark("(data loader)"),
    PYTHON: mark("(Python code)"),
    ANNOTATION: mark("(labelled ranges)"),
    RUNTIME: mark("(runtime calls)"),
    SYNC: mark("(waiting for the device)"),
    MEMORY: mark("(allocator)"),
    OVERHEAD: mark("(the profiler itself)"),
    OTHER: mark("(other host events)"),
}
"""Of other kinds the phase tells more than the kind."""


def outside(kind: str) -> str:
    """What host time outside of operators is called, by the kind of its event."""
    return _KINDS.get(kind, OUTSIDE)


def nothing_before(name: str) -> str:
    """What time is called in which nothing was recorded, by what comes next ("": the end)."""
    return f"{BEFORE}{bare(name)})" if name else UNTIL_THE_END


def bare(name: str) -> str:
    return name[1:-1] if name.startswith(("(", "（")) and name.endswith((")", "）")) else name


LEVELS: Final = ("phase", "layer", "family", "operator", "event")
"""Levels below the categories of the partition."""

NO_LAYER, NO_FAMILY = "(no layer)", "(no family)"

_LINE: Final = re.compile(r"\((\d+)\): ")
_INSTALLED: Final = re.compile(r"^.*(?:site|dist)-packages/")

TextArray = npt.NDArray[np.object_]


@dataclass(frozen=True, slots=True)
class Keys:
    """For each of :data:`LEVELS` the number of each event's text, shape (rows,), and the texts."""

    codes: dict[str, IntArray]
    texts: dict[str, TextArray]

    def of(self, rows: IntArray) -> dict[str, TextArray]:
        """The texts of some events."""
        return {level: self.texts[level][self.codes[level][rows]] for level in self.codes}


def keys(trace: Trace, layers: dict[str, str]) -> Keys:
    """The keys of all events. ``layers``: what the layers are called here, by their path; empty: no level of layers."""
    found = units(trace)
    holder = np.where(found.row != NO_ROW, found.row, np.arange(len(trace)))
    named = {
        "phase": _filled(trace.codes("phase"), NO_PHASE, holder),
        "layer": _filled(_renamed(trace.codes("module"), layers), NO_LAYER, holder),
        "family": _family(trace, found.family),
        "operator": _operator(trace, found.name),
        "event": _filled(_events(trace), NOTHING),
    }
    if not layers:
        del named["layer"]
    return Keys(
        {level: codes for level, (codes, _) in named.items()}, {name: texts for name, (_, texts) in named.items()}
    )


def _filled(codes: Codes, missing: str, rows: IntArray | None = None) -> tuple[IntArray, TextArray]:
    """Codes and texts with a text for null; those of other ``rows`` where these are given."""
    numbers = codes.codes if rows is None else codes.codes[rows]
    return np.where(numbers < 0, len(codes.values), numbers).astype(np.int64), _key_texts([*codes.values, missing])


def _renamed(codes: Codes, names: dict[str, str]) -> Codes:
    return _merged(codes, [names.get(value, value) for value in codes.values])


def _merged(codes: Codes, texts: list[str]) -> Codes:
    """The codes with other texts, equal ones under one number."""
    number, values = pd.factorize(_key_texts(texts))
    return Codes(codes.lookup(number.astype(np.int32), np.int32(-1)), list(values))


def _family(trace: Trace, family: Codes) -> tuple[IntArray, TextArray]:
    """Host events outside of operators have a word of their own."""
    texts = _key_texts([*family.values, NO_FAMILY, OUTSIDE])
    outside = (units(trace).row == NO_ROW) & trace.host
    known = np.where(family.codes < 0, len(family.values), family.codes)
    return np.where(outside & (family.codes < 0), len(family.values) + 1, known).astype(np.int64), texts


def _operator(trace: Trace, name: Codes) -> tuple[IntArray, TextArray]:
    """Outside of operators host events are told apart by their kind: the data loader, Python, ranges, calls."""
    kinds = trace.codes("kind")
    texts = _key_texts([*name.values, OUTSIDE, UNLAUNCHED, *map(outside, kinds.values)])
    count = len(name.values)
    lost = trace.rows("kind", *DEVICE_WORK) & (trace.ints("launched_by") == NO_ROW)
    unnamed = np.where(trace.host, count + 2 + kinds.codes, np.where(lost, count + 1, count))
    return np.where(name.codes < 0, unnamed, name.codes).astype(np.int64), texts


def _events(trace: Trace) -> Codes:
    """Names of the events; a Python frame without its line and the folder of its package, which differ by version."""
    names = trace.codes("name")
    frames = np.zeros(len(names.values), np.bool_)
    frames[np.unique(names.codes[trace.rows("kind", PYTHON)])] = True
    return _merged(names, [_frame(n) if frame else n for n, frame in zip(names.values, frames, strict=True)])


def _frame(name: str) -> str:
    return _INSTALLED.sub("", _LINE.sub(": ", name, count=1))


def _key_texts(values: list[Any]) -> TextArray:
    texts = np.empty(len(values), object)
    texts[:] = values
    return texts


CATEGORY: Final = "category"
_Parts = tuple[IntArray, IntArray, IntArray, IntArray]
"""Row of the event, category, phase and length of parts of the windows, shape (parts,) each."""


@dataclass(frozen=True, slots=True)
class Leaves:
    """Of one side, sums over its ``windows``. ``times``: category, the levels of the keys, ns (exclusive time, all rows
    sum to the windows; 0 where others hide all calls). ``events``: the levels, calls (events that start in a window,
    also where others hide them). ``operators``: the levels but the last, calls (of the operators themselves)."""

    windows: Windows
    times: pd.DataFrame
    events: pd.DataFrame
    operators: pd.DataFrame


def leaves(trace: Trace, windows: Windows, layers: Mapping[str, str]) -> Leaves:
    """The leaves of the windows; ``layers``: common names of the layers by their path, empty for none."""
    found = keys(trace, dict(layers))
    rows = windows.starts_in(trace.ints("rank"), trace.ints("start_ns"))
    calls = rows[_is_called(trace)[rows]]
    pieces = slices(trace, windows.rank, windows.start_ns, windows.end_ns)
    unowned = pieces.row == NO_ROW
    owned, gaps = np.flatnonzero(~unowned), np.flatnonzero(unowned)
    phase = piece_phases(trace, pieces)
    of_gaps = {**_gaps(pieces, gaps, found), "phase": found.texts["phase"][phase[gaps]]}
    ordered = {name: of_gaps[name] for name in (CATEGORY, *found.codes)}
    shown = pieces.row[owned], pieces.category[owned], phase[owned], pieces.dur_ns[owned]
    times = [_owned(pieces.categories, found, shown, _hidden(trace, pieces, calls, found)),
             _sums(ordered, pieces.dur_ns[gaps])]  # fmt: skip
    events = _counted(found, calls, tuple(found.codes))
    operators = _counted(found, rows[units(trace).own[rows]], tuple(found.codes)[:-1])
    return Leaves(windows, pd.concat(times, ignore_index=True), events, operators)


def _is_called(trace: Trace) -> BoolArray:
    """What counts as a call: device work, loads of data, and what lies in operators. How often a Python frame or a gap
    comes up says nothing."""
    activity = activities(trace)
    on_host = activity.host & ((units(trace).row != NO_ROW) | trace.rows("kind", DATALOADER))
    called: BoolArray = on_host | activity.communication | activity.copy
    return called | activity.compute if activity.on_device else called


def _hidden(trace: Trace, pieces: Slices, calls: IntArray, found: Keys) -> _Parts:
    """The calls that others hide entirely."""
    rows = calls[~np.isin(calls, pieces.row)]
    return rows, categories_of_events(trace)[rows], found.codes["phase"][rows], np.zeros(len(rows), np.int64)


def _owned(categories: tuple[str, ...], found: Keys, *parts: _Parts) -> pd.DataFrame:
    rows, category, phases, dur = (np.concatenate(each) for each in zip(*parts, strict=True))
    codes = {level: codes[rows] for level, codes in found.codes.items()} | {"phase": phases}
    code, first = groupby.distinct([category, *codes.values()], len(rows))
    names = np.array(categories, object)[category[first]]
    texts = {level: found.texts[level][numbers[first]] for level, numbers in codes.items()}
    return pd.DataFrame({CATEGORY: names, **texts, "ns": groupby.sums(code, len(first), dur)})


def _gaps(pieces: Slices, gaps: IntArray, found: Keys) -> dict[str, Any]:
    """Category and levels of pieces that no event owns: the layer where those before and after are the same, and what
    comes next in place of the operator."""
    before, after = _neighbours(pieces, gaps, -1), _neighbours(pieces, gaps, +1)
    texts = {level: (_texts(found, level, before), _texts(found, level, after)) for level in found.codes}
    columns: dict[str, Any] = {CATEGORY: np.array(pieces.categories, object)[pieces.category[gaps]]}
    if "layer" in texts:
        left, right = texts["layer"]
        columns["layer"] = np.where((left == right) & (after != NO_ROW), right, NO_LAYER)
    operator, event = texts["operator"][1], texts["event"][1]
    outside = texts["family"][1] == OUTSIDE
    following = np.where(outside, event, operator)
    columns["family"] = np.full(len(gaps), NOTHING, object)
    columns["operator"] = np.array(list(map(nothing_before, following)), object)
    columns["event"] = np.full(len(gaps), NOTHING, object)
    return columns


def _neighbours(pieces: Slices, gaps: IntArray, offset: int) -> IntArray:
    """Row that owns the piece before or after each gap in its window, -1 where there is none."""
    at = gaps + offset
    inside = (at >= 0) & (at < len(pieces.row))
    at = np.where(inside, at, 0)
    same = inside & (pieces.window[at] == pieces.window[gaps]) if len(pieces.row) else inside
    return np.where(same, pieces.row[at], NO_ROW) if len(pieces.row) else gaps


def _texts(found: Keys, level: str, rows: IntArray) -> np.ndarray:
    """The texts of rows, "" for none."""
    codes, texts = found.codes[level], found.texts[level]
    if not len(codes):
        return np.full(len(rows), "", object)
    return np.where(rows == NO_ROW, "", texts[codes[rows]])


def _counted(found: Keys, rows: IntArray, levels: tuple[str, ...]) -> pd.DataFrame:
    code, first = groupby.distinct([found.codes[level][rows] for level in levels], len(rows))
    texts = found.of(rows[first])
    counts = np.bincount(code, minlength=len(first)).astype(np.int64)
    return pd.DataFrame({**{level: texts[level] for level in levels}, "calls": counts})


def _sums(columns: Mapping[str, Any], dur_ns: IntArray) -> pd.DataFrame:
    code, first = groupby.distinct(columns.values(), len(dur_ns))
    texts = {key: column[first] for key, column in columns.items()}
    return pd.DataFrame({**texts, "ns": groupby.sums(code, len(first), dur_ns)})
