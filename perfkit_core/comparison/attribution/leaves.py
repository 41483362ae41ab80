"""What are the windows of one run made of? Its leaves: exclusive time and calls by category, phase, …, event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core import grouped
from perfkit_core.analyses.step.activity import activities
from perfkit_core.comparison.alignment.units import units
from perfkit_core.comparison.attribution.keys import NO_LAYER, Keys, keys
from perfkit_core.comparison.attribution.phases import piece_phases
from perfkit_core.comparison.attribution.slices import Slices, categories_of_events, slices
from perfkit_core.comparison.attribution.steps import Windows
from perfkit_core.comparison.attribution.wording import NOTHING, OUTSIDE
from perfkit_core.comparison.attribution.wording import before as nothing_before
from perfkit_core.schema import DATALOADER, NO_ROW
from perfkit_core.trace import BoolArray, IntArray, Trace

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
    code, first = grouped.distinct([category, *codes.values()], len(rows))
    names = np.array(categories, object)[category[first]]
    texts = {level: found.texts[level][numbers[first]] for level, numbers in codes.items()}
    return pd.DataFrame({CATEGORY: names, **texts, "ns": grouped.sums(code, len(first), dur)})


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
    code, first = grouped.distinct([found.codes[level][rows] for level in levels], len(rows))
    texts = found.of(rows[first])
    counts = np.bincount(code, minlength=len(first)).astype(np.int64)
    return pd.DataFrame({**{level: texts[level] for level in levels}, "calls": counts})


def _sums(columns: Mapping[str, Any], dur_ns: IntArray) -> pd.DataFrame:
    code, first = grouped.distinct(columns.values(), len(dur_ns))
    texts = {key: column[first] for key, column in columns.items()}
    return pd.DataFrame({**texts, "ns": grouped.sums(code, len(first), dur_ns)})
