"""Which time of one run corresponds to which of the other, and how much of each has no counterpart?

How much of the step's own time is aligned, each nanosecond counted once?

The exclusive slices of the middle steps: time of an operator counts on the level on which that operator was matched.
Time outside of operators (Python, labelled ranges, the data loader, gaps) is of the level ``layer`` where both runs
have such time of the same category in the same layer and phase, and of the level ``operator`` where they have it in the
same phase: there is nothing finer to match it by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms.arrays import NO_ROW
from perfkit_core.compare.align.items import Items, items
from perfkit_core.compare.align.layers import match_layers
from perfkit_core.compare.align.levels import LEVELS, SIDES, UNMATCHED, meet
from perfkit_core.compare.align.units import units
from perfkit_core.compare.attribute.phases import piece_phases
from perfkit_core.compare.attribute.slices import slices
from perfkit_core.compare.attribute.steps import Windows, middle_steps, whole_run
from perfkit_core.model.schema import OTHER
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.views.select import in_steps, step_numbers
from perfkit_core.views.steps.step_rows import step_rows

_OUTSIDE: Final = {"layer": ["category", "phase", "layer"], "operator": ["category", "phase"]}
"""Level → what time outside of operators must have in common."""

_HOST: Final = ("framework", "launch_and_host", "idle")
"""One category here: whether Python code between operators shows as an event depends on what the framework records."""


def exclusive_times(
    trace: Trace, windows: Windows, found: Items, levels: np.ndarray, layers: Mapping[str, str]
) -> pd.DataFrame:
    """Columns level (missing outside of operators), category, phase, layer, ns: sums over the windows. ``layers``:
    common names by path."""
    pieces = slices(trace, windows.rank, windows.start_ns, windows.end_ns)
    item = np.append(found.of_event, -1)[pieces.row]
    outside = (pieces.row == NO_ROW) | (units(trace).row[pieces.row] == NO_ROW) & (item < 0) if len(trace) else item < 0
    level = np.where(outside, None, np.append(levels, UNMATCHED)[item])
    phase, module = trace.codes("phase"), trace.codes("module")
    category = np.array(pieces.categories, object)[pieces.category]
    common = [layers.get(path) for path in module.values]
    table = pd.DataFrame(
        {
            "level": level,
            "category": np.where(np.isin(category, _HOST), "host", category),
            "phase": np.array([*phase.values, OTHER], object)[piece_phases(trace, pieces)],
            "layer": _texts(module.codes, [*common, None], pieces.row),
            "ns": pieces.dur_ns,
        }
    )
    keys = ["level", "category", "phase", "layer"]
    return table.groupby(keys, sort=False, dropna=False)["ns"].sum().reset_index()


def by_level(mine: pd.DataFrame, theirs: pd.DataFrame) -> dict[str, int]:
    """Time of ``mine`` by level; what lies outside of operators as said above."""
    level = mine["level"].astype(object)
    other = theirs[theirs["level"].isna()]
    for name, keys in _OUTSIDE.items():
        open_ones = level.isna() & mine[keys].notna().all(axis=1)
        shared = pd.MultiIndex.from_frame(other.loc[other[keys].notna().all(axis=1), keys])
        level = level.mask(open_ones & pd.MultiIndex.from_frame(mine[keys]).isin(shared), name)
    level = level.where(level.notna(), UNMATCHED)
    return {str(name): int(total) for name, total in mine["ns"].groupby(level).sum().items()}


def _texts(codes: np.ndarray, texts: list[str | None], rows: np.ndarray) -> np.ndarray:
    """Of the rows of events; the last text for none and for null."""
    values = np.empty(len(texts), object)
    values[:] = texts
    taken: np.ndarray = values[np.append(codes, -1)[rows]]
    return taken


Shares = dict[str, dict[str, dict[str, float | None]]]
MEASURES: Final = ("cpu", "device", "step")


@dataclass(frozen=True, slots=True, repr=False)
class Alignment:
    """What of two runs corresponds to each other.

    ``rows``: level (the first on which the two sides meet: layer, operator_shape, operator, family_phase, family; else
    unmatched), layer, operator, shape, dtype, phase, family (missing where they did not matter), base_calls,
    other_calls, then for cpu and device base_…_ns, other_…_ns, difference_…_ns: of one step where ``per_step``, else of
    the run.
    ``matched_share``: side → level → {"cpu", "device", "step"} → share that is matched on this level or on one before
    it (None: no such time): of the operators' host time, of the device work, and of the step, each nanosecond once. The
    level ``unmatched`` holds what is left.
    """

    per_step: bool
    rows: pd.DataFrame
    matched_share: Shares

    @property
    def matched(self) -> dict[str, dict[str, float | None]]:
        """Side → {"cpu", "device", "step"} → share of operator time, of device work and of the step that has a
        counterpart on any level."""
        last = list(LEVELS)[-1]
        return {side: levels[last] for side, levels in self.matched_share.items()}

    def __repr__(self) -> str:
        return f"Alignment({len(self.rows)} rows, {self.matched_share})"


def align(base: Trace, other: Trace) -> Alignment:
    """Align two runs of any frameworks, on each level what the levels before it left."""
    traces = (base, other)
    per_step = all(len(step_rows(trace)) for trace in traces)
    names = match_layers(base, other)
    layers = (names.base, names.other)
    found = [_items(trace, per_step, side) for trace, side in zip(traces, layers, strict=True)]
    rows, levels = meet(found[0].table, found[1].table)
    for side, trace in zip(SIDES, traces, strict=True):
        rows[f"{side}_calls"] /= _steps(trace, per_step)
    for measure in ("cpu", "device"):
        rows[f"difference_{measure}_ns"] = rows[f"other_{measure}_ns"] - rows[f"base_{measure}_ns"]
    columns = [*rows.columns[: -len(MEASURES) + 1]]
    step = _step_times(per_step, zip(traces, found, levels, layers, strict=True))
    shares = {side: _shares(rows, side, step[side]) for side in SIDES}
    return Alignment(per_step, _largest_first(rows[_ordered(columns)]), shares)


def _items(trace: Trace, per_step: bool, layers: dict[str, str]) -> Items:
    chosen = in_steps(trace, ViewRequest(steps=step_numbers(trace) if per_step else None))
    return items(trace, chosen, _steps(trace, per_step), layers)


def _steps(trace: Trace, per_step: bool) -> int:
    """By how many sums are divided."""
    return len(step_rows(trace)) if per_step else 1


def _ordered(columns: list[str]) -> list[str]:
    """The difference after the two times that it is of."""
    texts = [name for name in columns if not name.endswith("_ns")]
    return texts + [f"{side}_{measure}_ns" for measure in ("cpu", "device") for side in (*SIDES, "difference")]


def _largest_first(rows: pd.DataFrame) -> pd.DataFrame:
    """In the order of levels, the largest times first."""
    order = {level: number for number, level in enumerate((*LEVELS, UNMATCHED))}
    times = [f"{side}_{measure}_ns" for side in SIDES for measure in ("cpu", "device")]
    largest = rows[times].max(axis=1).to_numpy(np.int64)
    by = np.lexsort((-largest, rows["level"].map(order).to_numpy(np.int64)))
    return rows.iloc[by].reset_index(drop=True)


def _step_times(
    per_step: bool, sides: Iterable[tuple[Trace, Items, np.ndarray, dict[str, str]]]
) -> dict[str, dict[str, int]]:
    stretch = middle_steps if per_step else whole_run
    base, other = (exclusive_times(side[0], stretch(side[0]), side[1], side[2], side[3]) for side in sides)
    return {"base": by_level(base, other), "other": by_level(other, base)}


def _shares(rows: pd.DataFrame, side: str, step: Mapping[str, int]) -> dict[str, dict[str, float | None]]:
    every = {what: _by_level(rows, f"{side}_{what}_ns") for what in ("cpu", "device")} | {"step": step}
    shares: dict[str, dict[str, float | None]] = {}
    reached = dict.fromkeys(every, 0)
    share = {what: partial(_share, sum(times.values())) for what, times in every.items()}
    for level in LEVELS:
        reached = {what: reached[what] + times.get(level, 0) for what, times in every.items()}
        shares[level] = {what: share[what](reached[what]) for what in every}
    return {**shares, UNMATCHED: {what: share[what](times.get(UNMATCHED, 0)) for what, times in every.items()}}


def _by_level(rows: pd.DataFrame, column: str) -> Mapping[str, int]:
    return {str(level): int(total) for level, total in rows[column].groupby(rows["level"]).sum().items()}


def _share(whole: int, part: int) -> float | None:
    return part / whole if whole else None
