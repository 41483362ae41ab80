"""Alignment of two runs: the operators and device work that correspond to each other, level by level."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, Codes, IntArray
from perfkit_core.compare.align.layer_match import match_layers
from perfkit_core.compare.align.units import Units, piece_phases, unit_times, units
from perfkit_core.compare.slices import Windows, middle_steps, shared_out, slices, whole_run
from perfkit_core.model.schema import DEVICE_WORK, OTHER
from perfkit_core.model.trace import Trace
from perfkit_core.operators.names import GRADIENT_SUFFIX
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.views.select import in_steps, step_numbers
from perfkit_core.views.steps.step_rows import step_rows
from perfkit_core.views.tables import group

_PRODUCTS: Final = ("matmul", "linear", "bmm", "conv", "conv_transpose")
_ADD, _BETWEEN, _STORED = "add", "reshape", "accumulate_grad"
"""The gradient of a bias is stored as soon as it is there: between that of the sum and that of the product."""


def products(trace: Trace, found: Units) -> np.ndarray:
    """Of each operator of :func:`perfkit_core.compare.align.units.units` the product that it is, or that it may
    be part of, by name; None for all others, shape (rows,)."""
    rows, thread, phase = _in_order(trace, found)
    names = np.array([*found.name.values, None], object)[found.name.codes[rows]]
    told = np.full(len(trace), None, object)
    for suffix, step in (("", -1), (GRADIENT_SUFFIX, 1)):  # the gradient of a sum is computed first
        product = np.isin(names, [name + suffix for name in _PRODUCTS])
        near = _neighbour(thread, phase, np.arange(len(rows)), step)
        between = (near >= 0) & (names[near] == _BETWEEN + suffix)
        near = np.where(between, _neighbour(thread, phase, near, step), near)
        serves = (names == _ADD + suffix) & (near >= 0) & product[near]
        told[rows[product]] = names[product]
        told[rows[serves]] = names[near[serves]]
    return told


def _in_order(trace: Trace, found: Units) -> tuple[IntArray, IntArray, IntArray]:
    """The operators thread by thread in the order of time; thread and phase of each, as numbers."""
    rows = np.flatnonzero(found.own & trace.operators & ~found.name.rows(_STORED))
    places = np.column_stack([trace.ints(name)[rows] for name in ("rank", "pid", "tid")])
    _, thread = np.unique(places, axis=0, return_inverse=True)
    order = np.lexsort((trace.ints("start_ns")[rows], thread.reshape(-1)))
    rows = rows[order]
    return rows, thread.reshape(-1)[order].astype(np.int64), trace.codes("phase").codes[rows].astype(np.int64)


def _neighbour(thread: IntArray, phase: IntArray, at: IntArray, step: int) -> IntArray:
    """The operator before (-1) or after (1) each of ``at``, where it is of the same thread and phase; else -1."""
    count = len(thread)
    near = at + step
    inside = (at >= 0) & (near >= 0) & (near < count)
    near = np.where(inside, near, 0)
    at = np.maximum(at, 0)
    same = inside & (thread[near] == thread[at]) & (phase[near] == phase[at]) if count else inside
    return np.where(same, near, -1)


KEYS: Final = ("layer", "operator", "shape", "dtype", "phase", "family")
PRODUCT: Final = "product"
"""One more key: the product that an operator is, or may be part of."""
MEASURES: Final = ("calls", "cpu_ns", "device_ns")


@dataclass(frozen=True, slots=True)
class Items:
    """``table``: a row an item: the keys and ``product`` (missing: unknown), calls (of all steps), cpu_ns and device_ns
    of one step. ``of_event``: item of each event that is aligned, and of what belongs to it (-1: none), shape
    (rows,)."""

    table: pd.DataFrame
    of_event: IntArray


def items(trace: Trace, chosen: BoolArray, steps: int, layers: dict[str, str]) -> Items:
    """The items of the chosen events; their times sum to those of the outermost operators and of all device work.
    ``layers``: common names by path."""
    found = units(trace)
    alone = trace.rows("kind", *DEVICE_WORK) & (found.row == NO_ROW)
    rows = np.flatnonzero((found.own | alone) & chosen)
    groups = group(_keys(trace, found, rows, layers))
    cpu, device = _times(trace, alone)
    order = np.lexsort([groups.keys[key].fillna("").to_numpy(str) for key in (PRODUCT, *reversed(KEYS))])
    table = groups.keys.iloc[order].reset_index(drop=True)
    for name, values in (("cpu_ns", cpu), ("device_ns", device)):
        table[name] = shared_out(groups.sum(values[rows])[order], steps)
    table.insert(len(KEYS) + 1, "calls", groups.calls()[order])
    return Items(table, _of_events(found, rows, groups.code, order))


def _keys(trace: Trace, found: Units, rows: IntArray, layers: dict[str, str]) -> dict[str, Any]:
    events = _taken(trace.codes("name"), rows)
    layer = _taken(trace.codes("module"), rows)
    return {
        "layer": np.array([layers.get(path) if path is not None else None for path in layer], object),
        "operator": np.where(found.row[rows] == NO_ROW, events, _taken(found.name, rows)),
        "shape": _taken(trace.codes("shapes"), rows),
        "dtype": _taken(trace.codes("dtypes"), rows),
        "phase": _taken(trace.codes("phase"), rows),
        "family": _taken(found.family, rows),
        PRODUCT: products(trace, found)[rows],
    }


def _taken(codes: Codes, rows: IntArray) -> np.ndarray:
    texts = np.empty(len(codes.values) + 1, object)
    texts[:-1], texts[-1] = codes.values, None
    taken: np.ndarray = texts[codes.codes[rows]]
    return taken


def _times(trace: Trace, alone: BoolArray) -> tuple[IntArray, IntArray]:
    """Host and device time of each item's event; ``alone``: device work outside of operators."""
    cpu, device = unit_times(trace)
    return np.where(alone, 0, cpu), np.where(alone, trace.ints("dur_ns"), device)


def _of_events(found: Units, rows: IntArray, code: IntArray, order: IntArray) -> IntArray:
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    item = np.full(len(found.row) + 1, -1, np.int64)
    item[rows] = number[code]
    own = np.where(found.row == NO_ROW, np.arange(len(found.row)), found.row)
    return item[own]


UNMATCHED: Final = "unmatched"
LEVELS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "layer": (("layer", "operator", "phase"), ("layer", "family", "phase"), ("layer", "phase")),
    "operator_shape": (("operator", "shape", "dtype", "phase"), ("operator", "shape", "phase")),
    "operator": (("operator", "phase"), (PRODUCT, "phase")),
    "family_phase": (("family", "phase"),),
    "family": (("family",),),
}
"""Level → what items must have in common, one after the other; each leaves what it cannot match to the next."""
_WHOLE: Final = (("layer", "phase"), (PRODUCT, "phase"))
"""Where an item also meets what has met others before: the time of a layer corresponds as a whole, and a bias that one
side adds to the product of the other. Elsewhere it would hide that one side has more: one layer more, say."""

SIDES: Final = ("base", "other")
PAIRS: Final = [f"{side}_{measure}" for measure in MEASURES for side in SIDES]


def meet(base: pd.DataFrame, other: pd.DataFrame) -> tuple[pd.DataFrame, tuple[np.ndarray, np.ndarray]]:
    """Rows of what was matched (level, the keys that they share, {side}_calls, {side}_cpu_ns, {side}_device_ns) and, at
    level ``unmatched``, of what was not; and for each side the level of each of its items."""
    sides = (base, other)
    found = tuple(np.full(len(side), UNMATCHED, object) for side in sides)
    tables = []
    for level, ways in LEVELS.items():
        for keys in ways:
            left = [_open(side, of, keys) for side, of in zip(sides, found, strict=True)]
            common = _common([side[_known(side, keys)] for side in sides] if keys in _WHOLE else left, keys)
            tables.append(_row_each(left, common, keys, level))
            for of, side in zip(found, left, strict=True):
                of[side.index[_member(side, common, keys)]] = level
    left = [side[of == UNMATCHED] for side, of in zip(sides, found, strict=True)]
    keys = ("layer", "operator", "phase", "family")
    tables += [_one_side(side, keys, name) for side, name in zip(left, SIDES, strict=True)]
    rows = pd.concat([table for table in tables if len(table)] or tables[-1:], ignore_index=True)
    return rows[["level", *KEYS, *PAIRS]], (found[0], found[1])


def _open(side: pd.DataFrame, level: np.ndarray, keys: tuple[str, ...]) -> pd.DataFrame:
    """What is not matched yet, and has all keys; by its product only what serves one."""
    wanted = _known(side, keys) & (level == UNMATCHED)
    if PRODUCT in keys:
        wanted &= side["operator"] != side[PRODUCT]
    found: pd.DataFrame = side[wanted]
    return found


def _known(side: pd.DataFrame, keys: tuple[str, ...]) -> pd.Series[bool]:
    known: pd.Series[bool] = side[list(keys)].notna().all(axis=1)
    return known


def _common(sides: list[pd.DataFrame], keys: tuple[str, ...]) -> pd.Index:
    base, other = (pd.MultiIndex.from_frame(side[list(keys)]).unique() for side in sides)
    return base[base.isin(other)]


def _member(side: pd.DataFrame, common: pd.Index, keys: tuple[str, ...]) -> np.ndarray:
    found: np.ndarray = pd.MultiIndex.from_frame(side[list(keys)]).isin(common)
    return found


def _row_each(sides: list[pd.DataFrame], common: pd.Index, keys: tuple[str, ...], level: str) -> pd.DataFrame:
    tables = []
    for side, name in zip(sides, SIDES, strict=True):
        sums = side[_member(side, common, keys)].groupby(list(keys), sort=False)[list(MEASURES)].sum()
        tables.append(sums.rename(columns={measure: f"{name}_{measure}" for measure in MEASURES}))
    joined = tables[0].join(tables[1], how="outer", sort=False).fillna(0).reset_index()
    return _shaped(joined.rename(columns={PRODUCT: "operator"}), level)


def _one_side(side: pd.DataFrame, keys: tuple[str, ...], name: str) -> pd.DataFrame:
    sums = side.groupby(list(keys), sort=False, dropna=False)[list(MEASURES)].sum().reset_index()
    return _shaped(sums.rename(columns={measure: f"{name}_{measure}" for measure in MEASURES}), UNMATCHED)


def _shaped(table: pd.DataFrame, level: str) -> pd.DataFrame:
    """All columns: keys as text, missing where they do not matter; a side that has nothing has 0 calls and 0 ns."""
    nothing = np.zeros(len(table), np.int64)
    numbers = {name: table[name].to_numpy(np.int64) if name in table else nothing for name in PAIRS}
    texts = {key: _text(table[key]) if key in table else pd.Series([pd.NA] * len(table), dtype=object) for key in KEYS}
    return pd.DataFrame({"level": level, **texts, **numbers})


def _text(column: pd.Series) -> pd.Series:
    return column.astype(object).where(column.notna(), pd.NA)


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
    columns = [*rows.columns[:-2]]
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
