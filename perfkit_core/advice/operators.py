"""Select operators by name, nesting, call order or input shapes. Find the device work that they launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from perfkit_core.base.algorithms import nesting
from perfkit_core.base.algorithms.arrays import BoolArray, IntArray
from perfkit_core.replay.host_segments import matching as matching
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.schema import BACKWARD, DATALOADER, DEVICE_WORK, KERNEL, OPERATOR
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.select import marked, threads

Shapes = list[list[int]]
"""The shape of each input of an operator: ``[[64, 128], []]`` for a 64 × 128 tensor and an input without a shape."""


def name_of(trace: Trace, row: int) -> str:
    names = trace.codes("name")
    name: str = names.values[names.codes[row]]
    return name


def names_of(trace: Trace, rows: IntArray) -> list[str]:
    """Return the distinct names of the events, the most frequent first, and equally frequent ones alphabetically."""
    names = trace.codes("name")
    codes, counts = np.unique(names.codes[rows], return_counts=True)
    ranked = sorted(zip((-counts).tolist(), (names.values[code] for code in codes), strict=True))
    return [name for _, name in ranked]


def distinct_names(trace: Trace, rows: IntArray) -> list[str]:
    names = trace.codes("name")
    return [names.values[code] for code in np.unique(names.codes[rows])]


def operators(trace: Trace) -> BoolArray:
    mask: BoolArray = trace.host & trace.rows("kind", OPERATOR)
    return mask


def outermost(trace: Trace, mask: BoolArray) -> IntArray:
    """Return the rows of the outermost events in the mask. They lie in no other event of the mask."""
    return np.flatnonzero(mask & ~nesting.lies_in(trace.ints("parent"), mask))


def within(trace: Trace, rows: IntArray) -> BoolArray:
    """Return the mask of the rows and of all host events inside them, shape (rows of the trace,)."""
    chosen = marked(trace, rows)
    mask: BoolArray = chosen | nesting.lies_in(trace.ints("parent"), chosen)
    return mask


def kernels(trace: Trace) -> IntArray:
    return np.flatnonzero(trace.rows("kind", KERNEL) & ~trace.host)


def launched(trace: Trace) -> IntArray:
    return np.flatnonzero((trace.ints("launched_by") >= 0) & trace.rows("kind", *DEVICE_WORK))


def launched_within(trace: Trace, rows: IntArray) -> IntArray:
    """Return the rows of the device work that these host events, or events inside them, launched."""
    work = launched(trace)
    return work[within(trace, rows)[trace.ints("launched_by")[work]]]


@dataclass(frozen=True, slots=True)
class OperatorOrder:
    """Outermost operators, sorted by thread and time. All arrays have the shape (operators,)."""

    row: IntArray
    thread: IntArray  # code of the thread

    def same_thread(self, first: IntArray, second: IntArray) -> BoolArray:
        """Return for each pair of positions whether both operators run on the same thread. False for position -1."""
        mask: BoolArray = (first >= 0) & (second >= 0) & (self.thread[first] == self.thread[second])
        return mask


@once
def operator_order(trace: Trace) -> OperatorOrder:
    """Return the outermost operators in call order, without operators that load data."""
    rows = outermost(trace, operators(trace) & ~trace.rows("phase", DATALOADER))
    thread = threads(trace).code[rows].astype(np.int64)
    order = np.lexsort((trace.ints("start_ns")[rows], thread))
    return OperatorOrder(rows[order], thread[order])


def backward_of(trace: Trace, rows: IntArray) -> IntArray:
    """Return the rows of the outermost backward operators with the same sequence numbers as these forward operators and
    the operators inside them."""
    sequence = trace.ints("sequence")
    numbers = np.unique(sequence[within(trace, rows)])
    order = operator_order(trace)
    backward = order.row[trace.rows("phase", BACKWARD)[order.row]]
    return backward[np.isin(sequence[backward], numbers[numbers >= 0])]


def shapes_of(text: str) -> Shapes:
    """Parse a recorded list of shapes, one for each input. An input that holds several tensors gets an empty shape."""
    try:
        inputs = msgspec.json.decode(text, type=list[Any])
    except msgspec.DecodeError:
        return []
    return [
        shape if isinstance(shape, list) and all(isinstance(size, int) for size in shape) else [] for shape in inputs
    ]


def per_row(trace: Trace, rows: IntArray, of: Callable[[Shapes], Any], missing: Any) -> npt.NDArray[Any]:
    """Return ``of(shapes)`` for each row, or ``missing`` if it has no shapes. Equal shapes are evaluated only once."""
    shapes = trace.codes("shapes")
    codes = shapes.codes[rows]
    distinct = np.unique(codes[codes >= 0])
    table = np.full(len(shapes.values) + 1, missing)
    for code in distinct.tolist():
        table[code] = of(shapes_of(shapes.values[code]))
    return table[codes]  # code -1 (no shapes were recorded) selects the last item, ``missing``
