"""The outermost operators of each thread in their order, and what each of them launches."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from perfkit_core import nesting
from perfkit_core.advice.evidence.transfers import in_steps
from perfkit_core.advice.facts import Facts
from perfkit_core.analyses.devices.kernels import parameters
from perfkit_core.analyses.threads import threads
from perfkit_core.schema import DEVICE_WORK, KERNEL, OPERATOR
from perfkit_core.trace import BoolArray, IntArray, Trace

VIEWS: Final = ("reshape", "slice", "transpose", "expand", "split", "contiguous", "alias", "copy", "cast", "item")
"""Operators that compute nothing."""
_ROOM: Final = re.compile(r"empty", re.IGNORECASE)
"""Operators that reserve memory and leave open what it holds."""
_HALF: Final = re.compile(r"half|float16|bfloat16|float8|fp16|bf16|fp8", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class OuterOperators:
    """Outermost operators of the steps in the order of threads and time, arrays of shape (operators,): ``row``,
    ``thread``, ``works`` and ``kernels`` launched inside, ``work_ns`` of those. ``of`` is the position of the operator
    around each event (-1: none), shape (rows,)."""

    row: IntArray
    thread: IntArray
    works: IntArray
    kernels: IntArray
    work_ns: IntArray
    of: IntArray

    def __len__(self) -> int:
        return len(self.row)


def outer_operators(facts: Facts, copies: IntArray) -> OuterOperators:
    """Those of the steps, of the whole recording where there are none. ``copies``, rows of host events, count as
    operators where they lie in none: some frameworks read results outside of operators."""
    trace = facts.trace
    counts = trace.host & trace.rows("kind", OPERATOR)
    counts[copies] = True
    outer = nesting.outermost(trace.ints("parent"), counts)
    rows = np.flatnonzero((outer == np.arange(len(trace))) & in_steps(facts))
    rows = rows[np.lexsort((trace.ints("start_ns")[rows], threads(trace).code[rows]))]
    position = np.full(len(trace) + 1, -1, np.int64)
    position[rows] = np.arange(len(rows))
    of = position[outer]
    work = np.flatnonzero(trace.rows("kind", *DEVICE_WORK) & (trace.ints("launched_by") >= 0))
    at = of[trace.ints("launched_by")[work]]
    work, at = work[at >= 0], at[at >= 0]
    works, kernels, work_ns = (np.zeros(len(rows), np.int64) for _ in range(3))
    np.add.at(works, at, 1)
    np.add.at(kernels, at, trace.rows("kind", KERNEL)[work].astype(np.int64))
    np.add.at(work_ns, at, trace.ints("dur_ns")[work])
    return OuterOperators(rows, threads(trace).code[rows], works, kernels, work_ns, of)


def reserves(trace: Trace, rows: IntArray) -> BoolArray:
    """Whether operators only reserve memory."""
    return _by_value(trace, "name", rows, lambda text: bool(_ROOM.search(text)))


def of_half(trace: Trace, rows: IntArray) -> BoolArray:
    """Whether operators have inputs of 16 or 8 bits, which hosts are slow with."""
    return _by_value(trace, "dtypes", rows, lambda text: bool(_HALF.search(text)))


def elements(trace: Trace, rows: IntArray) -> IntArray:
    """Elements of the largest input of each operator; -1 where no shape was recorded. Shape (len(rows),)."""
    codes = trace.codes("shapes")
    counts = np.array([_largest(text) for text in codes.values], np.int64)
    found: IntArray = codes.lookup(counts, -1)[rows]
    return found


def single_block(trace: Trace, found: OuterOperators) -> npt.NDArray[np.int8]:
    """Of each operator whether all its kernels have one block of threads: 1 yes, 0 no, -1 not recorded."""
    launched_by = trace.ints("launched_by")
    kernels = np.flatnonzero(trace.rows("kind", KERNEL) & (launched_by >= 0))
    at = found.of[launched_by[kernels]]
    kernels, at = kernels[at >= 0], at[at >= 0]
    grid = parameters(trace, kernels)["grid"]
    one = np.array([all(part.strip() == "1" for part in text.split(",")) for text in grid.categories], np.bool_)
    known = np.asarray(grid.codes) >= 0
    verdict = np.where(known, np.append(one, False)[grid.codes], False)
    blocks = np.full(len(found), 1, np.int8)
    blocks[found.kernels == 0] = -1
    blocks[at[~known]] = -1
    blocks[at[known & ~verdict]] = 0
    return blocks


def _by_value(trace: Trace, column: str, rows: IntArray, test: Callable[[str], bool]) -> BoolArray:
    codes = trace.codes(column)
    found: BoolArray = codes.lookup(np.array([test(text) for text in codes.values], np.bool_), False)[rows]
    return found


def _largest(text: str) -> int:
    """Most elements of any shape in a JSON list of shapes; lists of tensors are nested once more."""
    try:
        return _elements(msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError):
        return -1


def _elements(shape: object) -> int:
    if not isinstance(shape, list):
        return -1
    if all(isinstance(size, int) for size in shape):
        return int(np.prod(shape, dtype=np.float64)) if shape else 1
    return max((_elements(inner) for inner in shape), default=-1)
