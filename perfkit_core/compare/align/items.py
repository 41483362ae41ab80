"""What of a run is aligned with another: its operators, and device work outside of them, told apart by all keys.

Which product does an addition belong to? One framework adds the bias inside of a product, another behind it.

An ``add`` right behind a matrix product or convolution (a reshape of the bias may lie between) may be its bias, and so
may an ``add_grad`` right in front of the product's gradient. Whether it is cannot be told from one run: a residual
connection looks the same. So this only serves additions that have no counterpart of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, Codes, IntArray
from perfkit_core.compare.align.units import Units, units
from perfkit_core.compare.attribute.effects import shared_out
from perfkit_core.model.schema import DEVICE_WORK
from perfkit_core.model.trace import Trace
from perfkit_core.operators.names import GRADIENT_SUFFIX
from perfkit_core.views import attribution
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


def unit_times(trace: Trace) -> tuple[IntArray, IntArray]:
    """Host and device time of each of the operators of :func:`units`: an unnamed one without the named ones inside it.
    Shape (rows,); other rows hold what they themselves took."""
    own, parent = units(trace).own, trace.ints("parent")
    cpu, device = trace.ints("dur_ns").copy(), attribution.total_device_ns(trace).copy()
    holder = nesting.nearest_above(parent, own)
    inner = np.flatnonzero(own & (holder != NO_ROW))
    for values in (cpu, device):
        np.subtract.at(values, holder[inner], values[inner].copy())
    return cpu, device


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
