"""Outermost operators in their order, what each launches, and what it costs to run one on the other side of the bus."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from perfkit_core import calibration
from perfkit_core.advice.evidence.operators import matching, operators
from perfkit_core.advice.facts import Facts
from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.language.messages import message
from perfkit_core.model.schema import DEVICE_WORK, KERNEL
from perfkit_core.model.trace import Trace
from perfkit_core.replay.quantity import Quantity
from perfkit_core.views.select import threads

if TYPE_CHECKING:
    from perfkit_core.calibration.model import Calibration

VIEWS: Final = ("reshape", "slice", "transpose", "expand", "split", "contiguous", "alias", "copy", "cast", "item")
"""Operators that compute nothing."""
_ALLOCATES: Final = re.compile(r"empty", re.IGNORECASE)
"""Operators that reserve memory and leave its contents open."""

HOST_NS: Final = Quantity(
    2_500, 7_000, 26_000, message("prior: median of operators on few numbers, in each of 5 public recordings")
)
LAUNCH_NS: Final = Quantity(
    10_000,
    30_000,
    52_000,
    message("prior: median of operators that launch one kernel, in each of 17 public recordings"),
)
COPY_NS: Final = Quantity(
    88_000,
    41_000,
    30_000,
    message(
        "prior: mean of copies of at most 512 bytes that the host waits for, with their operators, without those above "
        "ten times the median, in each of 11 public recordings on devices from V100 to MI300X"
    ),
)
"""What a removed copy saves: the most comes first."""
READ_NS: Final = Quantity(500, 1_000, 2_000, message("prior: a number in host memory is read without a copy"))
KERNEL_START_NS: Final = 2_000
"""What any kernel takes at least: typical of CUDA devices."""
_ENOUGH: Final = 3
"""This many calls in the same recording outweigh calls elsewhere."""


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
    """Return the outermost operators of the steps, of the whole recording where there are none. ``copies``, rows of
    host events, count as operators where they lie in none: some frameworks read results outside of operators."""
    trace = facts.trace
    counts = operators(trace)
    counts[copies] = True
    outer = nesting.outermost(trace.ints("parent"), counts)
    rows = np.flatnonzero((outer == np.arange(len(trace))) & facts.in_steps)
    rows = rows[np.lexsort((trace.ints("start_ns")[rows], threads(trace).code[rows]))]
    position = np.full(len(trace) + 1, -1, np.int64)  # the last one is where an event in no operator (-1) points
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


def only_allocates(trace: Trace, rows: IntArray) -> BoolArray:
    """Return whether each of the operators only reserves memory."""
    return matching(trace, "name", _ALLOCATES.search)[rows]


def elements(trace: Trace, rows: IntArray) -> IntArray:
    """Return the elements of the largest input of each operator; -1 where no shape was recorded. Shape (len(rows),)."""
    codes = trace.codes("shapes")
    counts: IntArray = codes.lookup(np.array([_largest(text) for text in codes.values], np.int64), -1)[rows]
    return counts


def _largest(text: str) -> int:
    """Return the most elements of any shape in a JSON list of shapes; lists of tensors are nested once more."""
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


def calibrated(trace: Trace) -> Calibration | None:
    """Return the calibration of this machine, if its device is of a model that the recording mentions."""
    models = {device.name for device in trace.meta.devices if device.name}
    calibrations = (calibration.known(trace.meta.framework or "", model) for model in sorted(models))
    return next((one for one in calibrations if one is not None), None)


def on_host_ns(facts: Facts, order: OuterOperators, canonical: str) -> Quantity:
    """Return the time of an operator on few numbers on the host.

    The same recording knows best, then a calibration of this machine, then public recordings."""
    trace = facts.trace
    same = trace.rows("op_name", canonical)[order.row] & (order.works == 0)
    count = elements(trace, order.row)
    same &= (count >= 0) & (count <= facts.thresholds.tiny_elements)
    measured = calibrated(trace)
    elsewhere = measured.host_ns(canonical) if measured else None
    return _recorded(trace.ints("dur_ns")[order.row[same]], elsewhere or HOST_NS)


def launching_ns(facts: Facts, order: OuterOperators) -> Quantity:
    """Return the host time of an operator that launches one kernel: of the same recording, else of public ones."""
    launches_one = (order.works == 1) & (order.kernels == 1)
    return _recorded(facts.trace.ints("dur_ns")[order.row[launches_one]], LAUNCH_NS)


def on_device_ns(bytes_each: float, ns_per_byte: Quantity) -> Quantity:
    """Return the device time of an operator on so many bytes, its start included."""
    low, mid, high = (KERNEL_START_NS + bytes_each * ns for ns in (ns_per_byte.low, ns_per_byte.mid, ns_per_byte.high))
    return Quantity(low, mid, high, ns_per_byte.source)


def _recorded(dur_ns: IntArray, otherwise: Quantity) -> Quantity:
    if len(dur_ns) < _ENOUGH:
        return otherwise
    low, mid, high = np.quantile(dur_ns, [0.25, 0.5, 0.75]).tolist()
    return Quantity(low, mid, high, message("middle half of {count:count} calls in this recording", count=len(dur_ns)))
