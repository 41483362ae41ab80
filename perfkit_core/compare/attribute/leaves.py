"""Leaves of the attribution tree: time of the account, and calls, by category, phase, layer, family, operator, event.

An event in an operator has the phase and the layer of that operator. The families of host time are the kinds of host
work, such as ``launch calls``. Time that belongs to no operator is named after its kind or category, or in parentheses,
such as ``(outside operators)``.
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
from perfkit_core.causes.host_work import HOST_WORK, UNRECORDED
from perfkit_core.causes.segments import LATENCY, TAIL
from perfkit_core.compare.pieces import BUSY, CATEGORIES, HELD, PHRASES, Pieces, without_time
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
_STATES: Final = tuple(PHRASES[category] for category in CATEGORIES)
TRANSLATED: Final = frozenset({OUTSIDE, UNLAUNCHED, *HOST_WORK, *_STATES})  # on the levels "family" and "operator"
CATEGORY: Final = "category"
LEVELS: Final = ("phase", "layer", "family", "operator", "event")
"""Levels of the tree below the category."""
_LINE: Final = re.compile(r"\((\d+)\): ")
_INSTALLED: Final = re.compile(r"^.*(?:site|dist)-packages/")

TextArray = npt.NDArray[np.object_]
Names = dict[str, tuple[IntArray, TextArray]]
"""Level → for each piece, the index of its name, and the names."""


def bare(name: str) -> str:
    return name[1:-1] if name.startswith(("(", "（")) and name.endswith((")", "）")) else name


def names(trace: Trace, pieces: Pieces, layers: Mapping[str, str]) -> Names:
    """Return the name of each piece on each of :data:`LEVELS`. ``layers`` maps the path of a layer to its name in the
    comparison. If ``layers`` is empty, there is no level ``layer``."""
    operators, row = pieces.operators, pieces.row
    state, kind, holder = pieces.category, pieces.kind, np.where(pieces.owner == NO_ROW, row, pieces.owner)
    busy = np.isin(state, [CATEGORIES.index(category) for category in BUSY])
    held = np.isin(state, [CATEGORIES.index(category) for category in HELD])
    result = {"phase": (pieces.phase, np.array([*trace.codes("phase").values, NO_PHASE], object))}
    if layers:
        module = trace.codes("module")
        common = _merged(module, [layers.get(path, path) for path in module.values])
        result["layer"] = _filled(common, NO_LAYER, holder)

    code, texts = _filled(operators.family, NO_FAMILY, row)
    of_kind = np.where(held, len(texts) + kind, len(texts) + len(HOST_WORK) + state)
    result["family"] = np.where(busy, code, of_kind), np.array([*texts, *HOST_WORK, *_STATES], object)

    code, texts = _filled(operators.name, OUTSIDE, pieces.owner)
    launched = np.append(trace.host | (trace.ints("launched_by") != NO_ROW), True)[row]
    code = np.where((pieces.owner == NO_ROW) & ~launched, len(texts), code)
    texts = np.array([*texts, UNLAUNCHED], object)
    named = busy | (held & (pieces.owner != NO_ROW))
    of_kind = np.where(held, len(texts) + kind, len(texts) + len(HOST_WORK) + state)
    result["operator"] = np.where(named, code, of_kind), np.array([*texts, *HOST_WORK, *_STATES], object)

    # The line number and the package folder of a Python frame are removed, because they differ between versions.
    events = trace.codes("name")
    frames = np.zeros(len(events.values), np.bool_)
    frames[np.unique(events.codes[trace.rows("kind", schema.PYTHON)])] = True
    short = [
        _INSTALLED.sub("", _LINE.sub(": ", name, count=1)) if frame else name
        for name, frame in zip(events.values, frames, strict=True)
    ]
    unnamed = np.isin(state, [CATEGORIES.index(LATENCY), CATEGORIES.index(TAIL)])
    unnamed |= kind == HOST_WORK.index(UNRECORDED)
    result["event"] = _filled(_merged(events, short), NOTHING, np.where(unnamed, NO_ROW, row))
    return result


def _filled(codes: Codes, missing: str, rows: IntArray) -> tuple[IntArray, TextArray]:
    """Return the code of each row and the texts, to which the text ``missing`` is added."""
    chosen = np.append(codes.codes, -1)[rows]
    numbers = np.where(chosen < 0, len(codes.values), chosen).astype(np.int64)
    return numbers, np.array([*codes.values, missing], object)


def _merged(codes: Codes, texts: list[str]) -> Codes:
    number, values = pd.factorize(np.array(texts, object))
    return Codes(codes.lookup(number.astype(np.int32), np.int32(-1)), list(values))


@dataclass(frozen=True, slots=True)
class Leaves:
    """Sums over the ``windows`` of one run, as three tables.

    - ``times``: the time of the account, which sums to that of the windows. Columns: category, :data:`LEVELS`, ns.
    - ``events``: calls of the events of the windows. Columns: :data:`LEVELS` except family, calls.
    - ``operators``: calls of the operators of the windows. Columns: :data:`LEVELS` except family and event, calls.
    """

    windows: Windows
    times: pd.DataFrame
    events: pd.DataFrame
    operators: pd.DataFrame


def leaves(trace: Trace, windows: Windows, pieces: Pieces, layers: Mapping[str, str]) -> Leaves:
    operators, activity = pieces.operators, activities(trace)
    # Calls are counted for device work, data loading and events in operators. Counts of Python frames mean nothing.
    called = activity.host & ((operators.row != NO_ROW) | trace.rows("kind", schema.DATALOADER))
    called |= activity.communication | activity.copy
    if activity.on_device:
        called |= activity.compute
    unlaunched = np.flatnonzero(trace.rows("kind", *schema.DEVICE_WORK) & (trace.ints("launched_by") == NO_ROW))
    here = windows.starting(trace.ints("rank")[unlaunched], trace.ints("start_ns")[unlaunched])
    rows = np.union1d(windows.members(trace), unlaunched[here])
    calls = rows[called[rows]]

    of_calls = without_time(trace, operators, calls)
    hidden = ~np.isin(calls, pieces.row)  # No time is assigned to these calls, but they are counted.
    by_level, by_call = names(trace, pieces, layers), names(trace, of_calls, layers)
    codes = [
        np.concatenate([pieces.category, of_calls.category[hidden]]),
        *(np.concatenate([by_level[level][0], by_call[level][0][hidden]]) for level in by_level),
    ]
    dur_ns = np.concatenate([pieces.dur_ns, np.zeros(int(hidden.sum()), np.int64)])
    code, first = groupby.distinct(codes, len(dur_ns))
    texts = [np.array(CATEGORIES, object), *(texts for _, texts in by_level.values())]
    levels = zip((CATEGORY, *by_level), codes, texts, strict=True)
    columns = {level: values[numbers[first]] for level, numbers, values in levels}
    times = pd.DataFrame({**columns, "ns": groupby.sums(code, len(first), dur_ns)})
    counted = rows[operators.counted[rows]]
    return Leaves(
        windows, times, _counted(by_call, len(calls), "event"),
        _counted(names(trace, without_time(trace, operators, counted), layers), len(counted)),
    )  # fmt: skip


def _counted(by_level: Names, count: int, *last: str) -> pd.DataFrame:
    levels = [level for level in by_level if level not in ("family", "event") or level in last]
    code, first = groupby.distinct([by_level[level][0] for level in levels], count)
    texts = {level: by_level[level][1][by_level[level][0][first]] for level in levels}
    return pd.DataFrame({**texts, "calls": np.bincount(code, minlength=len(first)).astype(np.int64)})
