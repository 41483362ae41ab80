"""Alignment of two runs: which operators and which device work correspond to each other.

Operators are matched level by level: first the same operator in the same layer, last any operators of one family.
Kernels that a compiler generated in one run are matched with the operators of the other run that they were made of.

The matched share of the step is computed from the half of the steps nearest to the median. The time of an operator is
added to the level on which the operator was matched. Time outside operators, such as Python code, matches on the level
``operator`` if the other run has time of the same category in the same phase.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import groupby
from perfkit_core.base.algorithms.arrays import NO_ROW, Codes, IntArray
from perfkit_core.base.language.messages import SIDES
from perfkit_core.base.language.units import counted, format_ratio
from perfkit_core.compare.align.composites import composed
from perfkit_core.compare.align.fusion import FUSED, FUSION, fused, with_fusions
from perfkit_core.compare.align.layer_match import match_layers
from perfkit_core.compare.align.operator_owner import Owners, owner_times
from perfkit_core.compare.equal_work import compared_windows, repeated
from perfkit_core.compare.pieces import INPUT, Pieces, pieces, shared_out
from perfkit_core.compare.windows import Windows
from perfkit_core.trace.model.schema import DEVICE_WORK
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.select import marked
from perfkit_core.views.tables import group

KEYS: Final = ("layer", "operator", "shape", "dtype", "phase", "family")
MEASURES: Final = ("calls", "cpu_ns", "device_ns")
KIND: Final = "kind"
NAMED, NATIVE, DEVICE_EVENT = "canonical name", "native name", "device event"
"""Values of the column :data:`KIND`: operators by the origin of their names, and device work outside operators."""
UNMATCHED: Final = "unmatched"
LEVELS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "layer": (
        ("layer", FUSION, "phase"),
        ("layer", "operator", "phase"),
        ("layer", "family", "phase"),
        ("layer", "phase"),
    ),
    "operator_shape": (("operator", "shape", "dtype", "phase"), ("operator", "shape", "phase")),
    "operator": ((FUSION, "phase"), ("operator", "phase")),
    "family_phase": (("family", "phase"),),
    "family": (("family",),),
}
"""Level → sets of keys. The sets are tried in this order, each on the items that are still unmatched. Two items match
if they have the same value for every key of a set."""
_ANY_WORK: Final = ("layer", "phase")
"""On these keys, other work of a layer may also match what is already matched."""
_OF_UNMATCHED: Final = ("layer", "operator", "phase", "family")
"""Keys by which items without a counterpart are summed."""
_OF_DEVICE: Final = ("compute", "communication", "copy", INPUT)
"""Categories that are told apart in matching. All others count as one, because only some frameworks record Python code
between operators."""
Shares = dict[str, dict[str, dict[str, float | None]]]


@dataclass(frozen=True, slots=True, repr=False)
class Alignment:
    """The corresponding parts of two runs. If ``per_step`` is true, calls and times are means per step; otherwise they
    are sums over the whole recording. Columns of ``rows``:

    - ``level``: the first level on which the items match (a key of :data:`LEVELS`), or "unmatched".
    - ``layer``, ``operator``, ``shape``, ``dtype``, ``phase``, ``family``: missing if the level does not use them.
    - ``{side}_calls``, ``{side}_cpu_ns``, ``{side}_device_ns``: calls and times of base and of other.
    - ``difference_cpu_ns``, ``difference_device_ns``: other minus base.

    ``matched_share``: side → level → measure → share of the time that is matched on this level or an earlier one. The
    measures are "cpu" (host operators), "device" (device work) and "step" (wall-clock time). The level "unmatched" has
    the remaining share. A share is None if there is no time.
    """

    per_step: bool
    rows: pd.DataFrame
    matched_share: Shares
    traces: tuple[Trace, Trace]
    windows: tuple[Windows, Windows]  # what is compared of each run
    layers: tuple[dict[str, str], dict[str, str]]  # path of a layer → its name in the comparison
    items: tuple[Items, Items]
    pieces: tuple[Pieces, Pieces]

    def __repr__(self) -> str:
        shares = (f"{format_ratio(share)} of {side}" for side, of in self.matched.items() if (share := of["step"]))
        return f"<Alignment {counted(len(self.rows), 'row')}, step time matched: {' and '.join(shares) or 'none'}>"

    @property
    def counts(self) -> tuple[int, int]:
        """The number of units of work (steps, calls or recordings) to which the calls and times of a run refer."""
        return unit_count(self.windows[0]), unit_count(self.windows[1])

    @property
    def matched(self) -> dict[str, dict[str, float | None]]:
        """Share of the time that is matched on any level: side → "cpu", "device" or "step" → share."""
        last = list(LEVELS)[-1]
        return {side: levels[last] for side, levels in self.matched_share.items()}


def align(base: Trace, other: Trace, windows: tuple[Windows, Windows] | None = None) -> Alignment:
    """Align two runs, of the same framework or of different ones. ``windows`` are those of a pair that was compared."""
    traces, layers = (base, other), match_layers(base, other)
    windows = windows or compared_windows(base, other, repeated(base, other))
    operators = composed(base, other)
    sides = [items(*side) for side in zip(traces, windows, operators, layers, strict=True)]
    counts = [unit_count(window) for window in windows]
    rows, levels = meet(sides[0].table, sides[1].table)
    for side, count in zip(SIDES, counts, strict=True):
        rows[f"{side}_calls"] /= count
    columns = ["level", *KEYS, *(f"{side}_calls" for side in SIDES)]
    for measure in ("cpu", "device"):
        rows[f"difference_{measure}_ns"] = rows[f"other_{measure}_ns"] - rows[f"base_{measure}_ns"]
        columns += [f"{side}_{measure}_ns" for side in (*SIDES, "difference")]

    cut = pieces(base, windows[0], operators[0]), pieces(other, windows[1], operators[1])
    times = [_by_level(*side) for side in zip(traces, cut, sides, levels, strict=True)]
    shares: Shares = {}
    for side, mine, theirs in zip(SIDES, times, reversed(times), strict=True):
        of_side: dict[str, dict[str, float | None]] = {level: {} for level in (*LEVELS, UNMATCHED)}
        for measure in ("cpu", "device", "step"):
            if measure == "step":
                times_by_level = _matched_times(mine, theirs)
            else:
                sums = rows[f"{side}_{measure}_ns"].groupby(rows["level"]).sum()
                times_by_level = {str(level): int(total) for level, total in sums.items()}
            total, matched_ns = sum(times_by_level.values()), 0
            for level, by_measure in of_side.items():
                matched_ns = times_by_level.get(level, 0) + (0 if level == UNMATCHED else matched_ns)
                by_measure[measure] = matched_ns / total if total else None
        shares[side] = of_side

    order = {level: number for number, level in enumerate((*LEVELS, UNMATCHED))}
    largest = rows[[f"{side}_{measure}_ns" for side in SIDES for measure in ("cpu", "device")]].max(axis=1)
    by = np.lexsort((-largest.to_numpy(np.int64), rows["level"].map(order).to_numpy(np.int64)))
    ordered = rows[columns].iloc[by].reset_index(drop=True)
    per_step = all(len(window.row) for window in windows)
    return Alignment(per_step, ordered, shares, traces, windows, layers, (sides[0], sides[1]), cut)


@dataclass(frozen=True, slots=True)
class Items:
    """The items of a run. An item is a group of operators with equal :data:`KEYS` (layer, name, shape and so on).
    Device work outside operators is grouped in the same way. :func:`meet` matches the items of two runs."""

    table: pd.DataFrame  # One row per item: its keys, its calls in all steps, and its mean times per step.
    of_event: IntArray  # The item of each event, -1 if it has none, shape (rows,).


def unit_count(windows: Windows) -> int:
    return windows.count if len(windows.row) or windows.calls else 1


def items(trace: Trace, windows: Windows, operators: Owners, layers: Mapping[str, str]) -> Items:
    """Group the events of the windows into items; of whole recordings, all events. The host times of the items sum to
    the time of the outermost operators. The device times sum to all device work. ``layers`` maps the path of a layer to
    its name in the comparison."""
    parts = len(windows.row) or windows.calls
    chosen = marked(trace, windows.members(trace)) if parts else np.ones(len(trace), np.bool_)
    outside = trace.rows("kind", *DEVICE_WORK) & (operators.row == NO_ROW)
    rows = np.flatnonzero((operators.counted | outside) & chosen)
    groups = group(
        {
            "layer": np.array([layers.get(path) for path in _texts_at(trace.codes("module"), rows)], object),
            "operator": np.where(
                operators.row[rows] == NO_ROW, _texts_at(trace.codes("name"), rows), _texts_at(operators.name, rows)
            ),
            "shape": _texts_at(trace.codes("shapes"), rows),
            "dtype": _texts_at(trace.codes("dtypes"), rows),
            "phase": _texts_at(trace.codes("phase"), rows),
            "family": _texts_at(operators.family, rows),
            FUSED: _texts_at(fused(trace), rows),
            KIND: np.where(operators.row[rows] == NO_ROW, DEVICE_EVENT, np.where(operators.named[rows], NAMED, NATIVE)),
        }
    )
    order = np.lexsort([groups.keys[key].fillna("").to_numpy(str) for key in (KIND, FUSED, *reversed(KEYS))])
    table = groups.keys.iloc[order].reset_index(drop=True)
    cpu, device = owner_times(trace, operators)
    times = {"cpu_ns": np.where(outside, 0, cpu), "device_ns": np.where(outside, trace.ints("dur_ns"), device)}
    for name, values in times.items():
        table[name] = shared_out(groups.sum(values[rows])[order], unit_count(windows))
    table.insert(len(KEYS) + 2, "calls", groups.calls()[order])

    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    item = np.full(len(trace), -1, np.int64)
    item[rows] = number[groups.code]
    return Items(table, item[np.where(operators.row == NO_ROW, np.arange(len(trace)), operators.row)])


def _texts_at(codes: Codes, rows: IntArray) -> np.ndarray:
    texts = np.empty(len(codes.values) + 1, object)
    texts[:-1], texts[-1] = codes.values, None
    row_texts: np.ndarray = texts[codes.codes[rows]]
    return row_texts


def meet(base: pd.DataFrame, other: pd.DataFrame) -> tuple[pd.DataFrame, tuple[np.ndarray, np.ndarray]]:
    """Match the items of two runs, level by level. Return a table with the levels, keys, calls and times of all items,
    and two arrays: the level at which each row of ``base`` matched, and that of each row of ``other``."""
    every = pd.concat(with_fusions(base, other), ignore_index=True)
    rows, of_other = len(every), np.arange(len(every)) >= len(base)
    values = {
        key: every[key].astype(object).where(every[key].notna(), pd.NA).to_numpy(object) for key in (*KEYS, FUSION)
    }
    codes = {key: pd.factorize(every[key])[0].astype(np.int64) for key in values}
    level, group, of_set = np.full(rows, UNMATCHED, object), np.full(rows, NO_ROW), np.zeros(rows, np.int64)
    keys_of_set: list[tuple[str, ...]] = [_OF_UNMATCHED]
    for name, key_sets in LEVELS.items():
        for keys in key_sets:
            complete = np.logical_and.reduce([codes[key] >= 0 for key in keys])
            rest = complete & (group == NO_ROW)
            candidates = complete if keys == _ANY_WORK else rest
            code, first = groupby.distinct([codes[key] for key in keys], rows)
            present = [np.bincount(code[candidates & side], minlength=len(first)) > 0 for side in (~of_other, of_other)]
            matched = rest & (present[0] & present[1])[code]
            level[matched], group[matched], of_set[matched] = name, code[matched], len(keys_of_set)
            keys_of_set.append(keys)
    alone = group == NO_ROW
    code, _ = groupby.distinct([of_other, *(codes[key] for key in _OF_UNMATCHED)], rows)
    group[alone], of_set[alone] = code[alone], 0
    order = np.argsort(np.where(alone, len(keys_of_set), of_set), kind="stable")
    code, first = groupby.distinct([of_set[order], group[order]], rows)
    first, sets = order[first], of_set[order[first]]
    table = pd.DataFrame({"level": level[first]})
    for key in KEYS:
        used = np.array([key in keys for keys in keys_of_set])[sets]
        table[key] = pd.Series(values[key][first], dtype=object).where(used, pd.NA)
    fusions = np.array([FUSION in keys for keys in keys_of_set])[sets]
    table["operator"] = np.where(fusions, values[FUSION][first], table["operator"].to_numpy(object))
    for measure in MEASURES:
        for side, mask in zip(SIDES, (~of_other, of_other), strict=True):
            ns = np.where(mask, every[measure], 0)[order]
            table[f"{side}_{measure}"] = groupby.sums(code, len(first), ns)
    return table, (level[~of_other], level[of_other])


def _by_level(trace: Trace, pieces: Pieces, items: Items, levels: np.ndarray) -> pd.Series[int]:
    """Return the time of the pieces by level, category and phase. The level is the one on which the operator was
    matched, or "" for time outside operators."""
    item = np.append(items.of_event, -1)[pieces.row]
    category = pieces.names()
    outside = (item < 0) | ~np.isin(category, _OF_DEVICE[:3]) & (pieces.owner == NO_ROW)
    table = pd.DataFrame(
        {
            "level": np.where(outside, "", np.append(levels, UNMATCHED)[item]),
            "category": np.where(np.isin(category, _OF_DEVICE), category, "host"),
            "phase": np.array([*trace.codes("phase").values, "other"], object)[pieces.phase],
            "ns": pieces.dur_ns,
        }
    )
    return table.groupby(["level", "category", "phase"], sort=False)["ns"].sum()


def _matched_times(mine: pd.Series[int], theirs: pd.Series[int]) -> dict[str, int]:
    """Return the time of the run ``mine`` on each level in ns. Time outside operators has a counterpart if the other
    run has such time in the same category and phase."""
    times: dict[str, int] = {}
    for (level, *kind), total in zip(mine.index.tolist(), mine.tolist(), strict=True):
        reached = level or ("operator" if ("", *kind) in theirs.index else UNMATCHED)
        times[reached] = times.get(reached, 0) + total
    return times
