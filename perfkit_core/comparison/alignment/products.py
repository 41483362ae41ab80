"""Which product does an addition belong to? One framework adds the bias inside of a product, another behind it.

An ``add`` right behind a matrix product or convolution (a reshape of the bias may lie between) may be its bias, and so
may an ``add_grad`` right in front of the product's gradient. Whether it is cannot be told from one run: a residual
connection looks the same. So this only serves additions that have no counterpart of their own.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.comparison.alignment.units import Units
from perfkit_core.operators.names import GRADIENT_SUFFIX
from perfkit_core.trace import IntArray, Trace

_PRODUCTS: Final = ("matmul", "linear", "bmm", "conv", "conv_transpose")
_ADD, _BETWEEN, _STORED = "add", "reshape", "accumulate_grad"
"""The gradient of a bias is stored as soon as it is there: between that of the sum and that of the product."""


def products(trace: Trace, found: Units) -> np.ndarray:
    """Of each operator of :func:`perfkit_core.comparison.alignment.units.units` the product that it is, or that it may
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
