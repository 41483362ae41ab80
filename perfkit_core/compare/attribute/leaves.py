"""Leaves of the attribution tree: exclusive time and calls by category, phase, layer, family, operator and event.

An event in an operator has the phase and the layer of that operator. Time outside operators has a name in parentheses,
such as ``(data loader)``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.base.algorithms import groupby
from perfkit_core.base.algorithms.arrays import NO_ROW, Codes, IntArray
from perfkit_core.base.language.messages import mark
from perfkit_core.compare.align.operator_owner import owners, piece_phases
from perfkit_core.compare.slices import Slices, categories_of_events, slices
from perfkit_core.compare.windows import Windows
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.operators.calls import NO_LAUNCH
from perfkit_core.views.steps.activity import activities

OUTSIDE: Final = mark("(outside operators)")
UNLAUNCHED: Final = NO_LAUNCH
NOTHING: Final = mark("(nothing recorded)")
NO_PHASE: Final = mark("(no phase)")
NO_LAYER, NO_FAMILY = mark("(no layer)"), mark("(no family)")
UNTIL_THE_END: Final = mark("(nothing recorded at the end)")
PYTHON_CODE: Final = mark("(Python code)")
_KINDS: Final[Mapping[str, str]] = {
    schema.DATALOADER: mark("(data loader)"),
    schema.PYTHON: PYTHON_CODE,
    schema.ANNOTATION: mark("(labelled ranges)"),
    schema.RUNTIME: mark("(runtime calls)"),
    schema.SYNC: mark("(waiting for the device)"),
    schema.MEMORY: mark("(allocator)"),
    schema.OVERHEAD: mark("(the profiler itself)"),
    schema.OTHER: mark("(other host events)"),
}
"""Kind of a host event outside operators → name that the tree shows for its time. Other kinds: :data:`OUTSIDE`."""
TRANSLATED: Final = frozenset({OUTSIDE, UNLAUNCHED, UNTIL_THE_END, *_KINDS.values()})  # on the level "operator"
CATEGORY: Final = "category"
LEVELS: Final = ("phase", "layer", "family", "operator", "event")
"""Levels of the tree below the category."""
_LINE: Final = re.compile(r"\((\d+)\): ")
_INSTALLED: Final = re.compile(r"^.*(?:site|dist)-packages/")

TextArray = npt.NDArray[np.object_]


def nothing_before(name: str) -> str:
    """Return the name of idle time before the operator or event ``name``, or at a window's end if ``name`` is ""."""
    return f"(nothing recorded before {bare(name)})" if name else UNTIL_THE_END


def bare(name: str) -> str:
    return name[1:-1] if name.startswith(("(", "（")) and name.endswith((")", "）")) else name


@dataclass(frozen=True, slots=True)
class Keys:
    """The name of each event on each of :data:`LEVELS`."""

    codes: dict[str, IntArray]  # Level → for each event, the index of its name in ``texts``, shape (rows,).
    texts: dict[str, TextArray]  # Level → all names on this level.

    def of(self, level: str, rows: IntArray) -> TextArray:
        codes, texts = self.codes[level], self.texts[level]
        if not len(codes):
            return np.full(len(rows), "", object)
        return np.where(rows == NO_ROW, "", texts[codes[rows]])


def keys(trace: Trace, layers: Mapping[str, str]) -> Keys:
    """Return the name of each event on each level. ``layers`` maps the path of a layer to its name in the comparison.
    If ``layers`` is empty, there is no level ``layer``."""
    operators, kinds, names = owners(trace), trace.codes("kind"), trace.codes("name")
    is_outside = (operators.row == NO_ROW) & trace.host
    holder = np.where(operators.row != NO_ROW, operators.row, np.arange(len(trace)))
    named = {"phase": _filled(trace.codes("phase"), NO_PHASE, holder)}
    if layers:
        module = trace.codes("module")
        common = _merged(module, [layers.get(path, path) for path in module.values])
        named["layer"] = _filled(common, NO_LAYER, holder)

    codes, count = operators.family.codes, len(operators.family.values)
    numbers = np.where(codes < 0, np.where(is_outside, count + 1, count), codes).astype(np.int64)
    named["family"] = numbers, np.array([*operators.family.values, NO_FAMILY, OUTSIDE], object)

    codes, count = operators.name.codes, len(operators.name.values)
    unlaunched = trace.rows("kind", *schema.DEVICE_WORK) & (trace.ints("launched_by") == NO_ROW)
    unnamed = np.where(trace.host, count + 2 + kinds.codes, np.where(unlaunched, count + 1, count))
    of_kinds = (_KINDS.get(kind, OUTSIDE) for kind in kinds.values)
    texts = np.array([*operators.name.values, OUTSIDE, UNLAUNCHED, *of_kinds], object)
    named["operator"] = np.where(codes < 0, unnamed, codes).astype(np.int64), texts

    # The line number and the package folder of a Python frame are removed, because they differ between versions.
    frames = np.zeros(len(names.values), np.bool_)
    frames[np.unique(names.codes[trace.rows("kind", schema.PYTHON)])] = True
    events = [
        _INSTALLED.sub("", _LINE.sub(": ", name, count=1)) if frame else name
        for name, frame in zip(names.values, frames, strict=True)
    ]
    named["event"] = _filled(_merged(names, events), NOTHING, slice(None))
    return Keys({level: pair[0] for level, pair in named.items()}, {level: pair[1] for level, pair in named.items()})


def _filled(codes: Codes, missing: str, rows: IntArray | slice) -> tuple[IntArray, TextArray]:
    chosen = codes.codes[rows]
    numbers = np.where(chosen < 0, len(codes.values), chosen).astype(np.int64)
    return numbers, np.array([*codes.values, missing], object)


def _merged(codes: Codes, texts: list[str]) -> Codes:
    number, values = pd.factorize(np.array(texts, object))
    return Codes(codes.lookup(number.astype(np.int32), np.int32(-1)), list(values))


@dataclass(frozen=True, slots=True)
class Leaves:
    """Sums over the ``windows`` of one run, as three tables.

    - ``times``: exclusive time, which sums to the time of the windows. Columns: category, :data:`LEVELS`, ns.
    - ``events``: calls of the events that start in a window. Columns: :data:`LEVELS`, calls.
    - ``operators``: calls of the operators that start in a window. Columns: :data:`LEVELS` except event, calls.
    """

    windows: Windows
    times: pd.DataFrame
    events: pd.DataFrame
    operators: pd.DataFrame


def leaves(trace: Trace, windows: Windows, layers: Mapping[str, str]) -> Leaves:
    by_event, operators, activity = keys(trace, layers), owners(trace), activities(trace)
    levels = tuple(by_event.codes)
    # Calls are counted for device work, data loading and events in operators. Counts of Python frames mean nothing.
    called = activity.host & ((operators.row != NO_ROW) | trace.rows("kind", schema.DATALOADER))
    called |= activity.communication | activity.copy
    if activity.on_device:
        called |= activity.compute
    unlaunched = np.flatnonzero(trace.rows("kind", *schema.DEVICE_WORK) & (trace.ints("launched_by") == NO_ROW))
    here = windows.starting(trace.ints("rank")[unlaunched], trace.ints("start_ns")[unlaunched])
    rows = np.union1d(windows.members(trace), unlaunched[here])
    calls = rows[called[rows]]

    pieces = slices(trace, windows.rank, windows.start_ns, windows.end_ns)
    phase = piece_phases(trace, pieces)
    owned = np.flatnonzero(pieces.row != NO_ROW)
    hidden = calls[~np.isin(calls, pieces.row)]  # No time is assigned to these calls, but they are counted.
    row = np.concatenate([pieces.row[owned], hidden])
    category = np.concatenate([pieces.category[owned], categories_of_events(trace)[hidden]])
    phase_codes = np.concatenate([phase[owned], by_event.codes["phase"][hidden]])
    dur_ns = np.concatenate([pieces.dur_ns[owned], np.zeros(len(hidden), np.int64)])
    codes = {level: numbers[row] for level, numbers in by_event.codes.items()} | {"phase": phase_codes}
    code, first = groupby.distinct([category, *codes.values()], len(row))
    columns = {CATEGORY: np.array(pieces.categories, object)[category[first]]}
    columns |= {level: by_event.texts[level][numbers[first]] for level, numbers in codes.items()}
    times = pd.DataFrame({**columns, "ns": groupby.sums(code, len(first), dur_ns)})
    return Leaves(
        windows,
        pd.concat([times, _gaps(pieces, phase, by_event)], ignore_index=True),
        _counted(by_event, calls, levels),
        _counted(by_event, rows[operators.counted[rows]], levels[:-1]),
    )


def _gaps(pieces: Slices, phase: IntArray, by_event: Keys) -> pd.DataFrame:
    """Return leaves for the gaps in which nothing was recorded. A gap is named after the next operator or event. It has
    a layer only if the events before and after it have the same layer. Gaps with equal names form one leaf."""
    gaps = np.flatnonzero(pieces.row == NO_ROW)
    before, after = (_neighbours(pieces, gaps, offset) for offset in (-1, 1))
    columns = {
        CATEGORY: np.array(pieces.categories, object)[pieces.category[gaps]],
        "phase": by_event.texts["phase"][phase[gaps]],
    }
    if "layer" in by_event.codes:
        left, right = by_event.of("layer", before), by_event.of("layer", after)
        columns["layer"] = np.where((left == right) & (after != NO_ROW), right, NO_LAYER)
    is_outside = by_event.of("family", after) == OUTSIDE
    following = np.where(is_outside, by_event.of("event", after), by_event.of("operator", after))
    columns["family"] = np.full(len(gaps), NOTHING, object)
    columns["operator"] = np.array(list(map(nothing_before, following)), object)
    columns["event"] = np.full(len(gaps), NOTHING, object)
    code, first = groupby.distinct(columns.values(), len(gaps))
    texts = {key: column[first] for key, column in columns.items()}
    return pd.DataFrame({**texts, "ns": groupby.sums(code, len(first), pieces.dur_ns[gaps])})


def _neighbours(pieces: Slices, gaps: IntArray, offset: int) -> IntArray:
    """Return for each gap the event before (``offset`` -1) or after it (``offset`` 1) in its window; -1 if none."""
    if not len(pieces.row):
        return gaps
    at = gaps + offset
    inside = (at >= 0) & (at < len(pieces.row))
    at = np.where(inside, at, 0)
    return np.where(inside & (pieces.window[at] == pieces.window[gaps]), pieces.row[at], NO_ROW)


def _counted(by_event: Keys, rows: IntArray, levels: tuple[str, ...]) -> pd.DataFrame:
    code, first = groupby.distinct([by_event.codes[level][rows] for level in levels], len(rows))
    texts = {level: by_event.texts[level][by_event.codes[level][rows[first]]] for level in levels}
    return pd.DataFrame({**texts, "calls": np.bincount(code, minlength=len(first)).astype(np.int64)})
