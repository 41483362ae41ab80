"""Find copies between host and device, host calls that wait for copies, and round trips. Estimate operator times."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from perfkit_core.advice.operators import launched, matching, operators
from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.base.algorithms import groupby, intervals, nesting
from perfkit_core.base.algorithms.arrays import BoolArray, IntArray
from perfkit_core.base.language.messages import message
from perfkit_core.plugins.flops.arguments import Tensor, arguments
from perfkit_core.replay.device_work import UNEXPLAINED_NS
from perfkit_core.replay.transforms import Quantity
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.select import threads

if TYPE_CHECKING:
    from perfkit_core.measure.calibration.bench import Calibration

VIEWS: Final = ("reshape", "slice", "transpose", "expand", "split", "contiguous", "alias", "copy", "cast", "item")
"""Canonical operators that compute nothing."""
_ALLOCATES: Final = re.compile(r"empty", re.IGNORECASE)
"""Operators that allocate memory without writing to it."""
MOVES: Final = ("copy", "cast", "item")
"""Canonical operators that only move data."""
_MOVING: Final = re.compile(r"memcpy|\bitem\b|\bnumpy\b|\btolist\b|TensorCopy", re.IGNORECASE)
NESTED: Final = 8
"""Maximum nesting depth of operators that move data (to → _to_copy → copy_ → …)."""
_NEAR: Final = 8
"""Maximum number of operators between a copy to the host and the copy back. Copies farther apart count as unrelated."""
HOST_NS: Final = Quantity(
    2_500, 7_000, 26_000, message("estimate: median times of operators on tiny tensors in 5 public recordings")
)
LAUNCH_NS: Final = Quantity(
    10_000, 30_000, 52_000,
    message("estimate: median host times, in 17 public recordings, of operators that launch one kernel"),
)  # fmt: skip
_KERNEL_START_NS: Final = 2_000
"""Minimum duration of a kernel, typical of CUDA devices. The time for its data is added."""
_ENOUGH: Final = 3
"""Minimum number of recorded calls from which an operator's time is computed. Fewer calls are not used."""


@dataclass(frozen=True, slots=True)
class Transfers:
    """Copies between host and device, sorted by thread and launch. All arrays have the shape (copies,)."""

    row: IntArray
    call: IntArray  # row of the call that launched the copy
    sync: IntArray  # row of the next call, if it is a synchronisation that waits for the copy; else -1
    owner: IntArray  # row of the outermost event that contains ``call`` and only moves data
    bytes: IntArray  # -1 if unknown
    to_host: BoolArray  # whether the copy goes to the host
    waited_ns: IntArray  # time that the host waits in ``call`` and ``sync``

    def __len__(self) -> int:
        return len(self.row)

    def only(self, mask: BoolArray) -> Transfers:
        return Transfers(*(getattr(self, name)[mask] for name in self.__slots__))

    @property
    def syncs(self) -> IntArray:
        return self.sync[self.sync >= 0]

    @property
    def everything(self) -> IntArray:
        """The rows of the outermost events that make these copies, and of the synchronisations after them."""
        return np.unique(np.concatenate([self.owner, self.syncs]))


@once
def transfers(facts: RuleInput) -> Transfers:
    """Return the copies between host and device in the steps. If no steps were recorded, return all copies."""
    trace, thread = facts.trace, threads(facts.trace).code
    rows = np.flatnonzero(trace.rows("kind", schema.MEMCPY) & (trace.ints("launched_by") >= 0) & facts.in_steps)
    call = trace.ints("launched_by")[rows]
    # owner: the outermost event that contains the call and only moves data
    moves = trace.rows("kind", schema.OPERATOR) & trace.rows("op_name", *MOVES)
    kinds = (schema.OPERATOR, schema.OPERATOR_DETAIL, schema.ANNOTATION)
    moves |= matching(trace, "name", _MOVING.search) & trace.rows("kind", *kinds)
    moves &= trace.host
    owner = call.copy()
    for _ in range(NESTED):
        above = trace.ints("parent")[owner]
        owner = np.where((above >= 0) & moves[above], above, owner)
    copies = trace.codes("copy_kind")
    direction = copies.lookup(np.array([kind[:4] for kind in copies.values], "U4"), "")[rows]
    # ``item`` always copies to the host, even if the profiler labels the host memory as device memory
    direction = np.where(trace.rows("op_name", "item")[owner], "DtoH", direction)
    order = np.lexsort((trace.ints("start_ns")[call], thread[call]))
    order = order[np.isin(direction, ("DtoH", "HtoD"))[order]]
    rows, call, owner, direction = rows[order], call[order], owner[order], direction[order]
    # sync: the synchronisation that follows the call in the same operator, before any other launch; -1 if none
    launches = np.zeros(len(trace), np.bool_)
    launches[trace.ints("launched_by")[trace.ints("launched_by") >= 0]] = True
    syncs = trace.host & trace.rows("kind", schema.SYNC)
    calls = np.flatnonzero(trace.host & (syncs | (launches & trace.rows("kind", schema.RUNTIME))))
    calls = calls[np.lexsort((trace.ints("start_ns")[calls], thread[calls]))]
    position = np.full(len(trace), -1, np.int64)
    position[calls] = np.arange(len(calls))
    sync = np.append(calls, -1)[position[call] + 1]
    same = (position[call] >= 0) & (sync >= 0) & syncs[sync] & (thread[sync] == thread[call])
    same &= trace.ints("parent")[sync] == trace.ints("parent")[call]
    sync = np.where(same, sync, -1)
    waited = facts.waiting_ns[call] + np.where(sync >= 0, facts.waiting_ns[sync], 0)
    return Transfers(rows, call, sync, owner, _bytes(trace, rows, call), direction == "DtoH", waited)


def _bytes(trace: Trace, rows: IntArray, call: IntArray) -> IntArray:
    """Return the bytes of copies; -1 if unknown. Where they were not recorded, or as 0, they are those of the tensor
    that the operator around the call copies, unless this operator also converts or broadcasts it."""
    recorded = trace.ints("bytes")[rows]
    operator = np.append(trace.ints("parent"), -1)[call]
    moves = (recorded <= 0) & (operator >= 0) & trace.rows("op_name", "copy", "item")[operator]
    if not moves.any():
        return np.where(recorded > 0, recorded, -1)
    shapes, dtypes = trace.codes("shapes"), trace.codes("dtypes")
    pairs = np.stack([shapes.codes[operator[moves]], dtypes.codes[operator[moves]]])
    distinct, at = np.unique(pairs, axis=1, return_inverse=True)
    sizes = np.full(distinct.shape[1], -1, np.int64)
    for index, (shape, dtype) in enumerate(distinct.T.tolist()):
        if shape >= 0 and dtype >= 0:
            try:
                inputs = arguments(shapes.values[shape], dtypes.values[dtype], None)
            except ValueError:
                continue
            tensor_bytes = {argument.bytes for argument in inputs if isinstance(argument, Tensor)}
            sizes[index] = next(iter(tensor_bytes)) or -1 if len(tensor_bytes) == 1 else -1
    result: IntArray = np.where(recorded > 0, recorded, -1)
    result[moves] = sizes[at.ravel()]
    return result


def unexplained_ns(facts: RuleInput, calls: IntArray) -> IntArray:
    """Return the part of each call's wait in which no device of the rank does recorded work, shape (calls,).

    What the host waits for then was not recorded, for example work of another process. The wait would remain without
    the call. Short times, such as the start of a copy, count as explained."""
    trace = facts.trace
    work = np.flatnonzero(~trace.host & trace.rows("kind", *schema.DEVICE_WORK))
    end, waiting = trace.end_ns[calls], facts.waiting_ns[calls]
    explained = np.zeros(len(calls), np.int64)
    for rank in facts.ranks:
        here, busy = trace.ints("rank")[calls] == rank, work[trace.ints("rank")[work] == rank]
        busy_ns = intervals.union_of(busy, trace.ints("start_ns"), trace.end_ns)
        explained[here] = intervals.covered_ns(busy_ns, end[here] - waiting[here], end[here])
    rest: IntArray = waiting - explained
    return np.where(rest > UNEXPLAINED_NS, rest, 0)


def wait_ceiling_ns(facts: RuleInput, own_ns: float) -> int:
    """Return the largest saving in ns per step from removing calls that wait.

    With waits, a step takes at most ``host + device``. Without waits, it takes at least ``max(host, device)``. So waits
    cost at most ``min(host, device)``. The removed calls also save ``own_ns``, their time without waits."""
    activity, trace = facts.activity, facts.trace
    both = [np.concatenate(part) for part in zip(activity.compute, activity.copy, strict=True)]
    device = float(np.median(facts.within_steps(intervals.union(*both), device=True)))
    calls = trace.host & trace.rows("kind", schema.SYNC, schema.RUNTIME) & facts.in_steps
    host = max(facts.step_ns - facts.per_step(int(facts.waiting_ns[calls].sum())), 0)
    return round(min(host, device) + own_ns)


@dataclass(frozen=True, slots=True)
class OuterOperators:
    """Outermost operators in steps, sorted by thread and time. All arrays but ``of`` have the shape (operators,)."""

    row: IntArray
    thread: IntArray
    works: IntArray  # number of device events that the operator launches
    kernels: IntArray  # number of kernels that the operator launches
    of: IntArray  # shape (rows,): the position of the operator that contains the event, or -1

    def __len__(self) -> int:
        return len(self.row)


def outer_operators(facts: RuleInput, copies: IntArray) -> OuterOperators:
    """Return the outermost operators of the steps, or of the entire recording if no steps were recorded. The host
    events ``copies`` count as operators, because some frameworks read results outside of operators."""
    trace = facts.trace
    counts = operators(trace)
    counts[copies] = True
    outer = nesting.outermost(trace.ints("parent"), counts)
    rows = np.flatnonzero((outer == np.arange(len(trace))) & facts.in_steps)
    rows = rows[np.lexsort((trace.ints("start_ns")[rows], threads(trace).code[rows]))]
    position = np.full(len(trace) + 1, -1, np.int64)  # index -1 (no operator) selects the last item, which stays -1
    position[rows] = np.arange(len(rows))
    of = position[outer]
    work = launched(trace)
    at = of[trace.ints("launched_by")[work]]
    work, at = work[at >= 0], at[at >= 0]
    works, kernels = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    np.add.at(works, at, 1)
    np.add.at(kernels, at, trace.rows("kind", schema.KERNEL)[work].astype(np.int64))
    return OuterOperators(rows, threads(trace).code[rows], works, kernels, of)


def only_allocates(trace: Trace, rows: IntArray) -> BoolArray:
    return matching(trace, "name", _ALLOCATES.search)[rows]


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """Copies of data to the host and back."""

    count: int  # number of round trips
    copies: Transfers
    operators: IntArray  # positions in ``order`` of the operators that compute on the host in a round trip
    order: OuterOperators

    def copies_ns(self, facts: RuleInput) -> float:
        """Return the host time of the copies in ns per step, including all calls that wait for them."""
        dur, copies = facts.trace.ints("dur_ns"), self.copies
        separate = (copies.sync >= 0) & (copies.owner == copies.call)
        return facts.per_step(int(dur[np.unique(copies.owner)].sum() + dur[copies.sync[separate]].sum()))


def round_trips(facts: RuleInput, least_bytes: int, computing: bool) -> RoundTrips:
    """Return the round trips of at least ``least_bytes``. If ``computing`` is true, return those during which the host
    computes, else the others.

    A round trip is a copy to the host, followed by a copy to the device. The second copy must be the next one of equal
    size in the same thread and step."""
    trace, moved = facts.trace, transfers(facts)
    order = outer_operators(facts, moved.owner)
    at = np.flatnonzero(moved.bytes >= max(least_bytes, 1))
    keys = [threads(trace).code[moved.call[at]], trace.ints("step")[moved.row[at]], moved.bytes[at]]
    code, _ = groupby.sorted_codes(keys, len(at))
    at = at[np.lexsort((trace.ints("start_ns")[moved.call[at]], code))]
    code = np.sort(code)
    follows = np.flatnonzero((code[1:] == code[:-1]) & moved.to_host[at[:-1]] & ~moved.to_host[at[1:]])
    there, back = at[follows], at[follows + 1]
    first, last = order.of[moved.call[there]] + 1, order.of[moved.call[back]]
    placed = (first > 0) & (last >= 0) & (last - first >= 0) & (last - first <= _NEAR)
    computes = (order.works == 0) & ~trace.rows("op_name", *VIEWS)[order.row] & ~only_allocates(trace, order.row)
    before = np.append(0, np.cumsum(computes))  # before[i]: number of computing operators among the first i
    placed &= (before[last] - before[first] > 0) == computing
    there, back, first, last = there[placed], back[placed], first[placed], last[placed]
    in_trip = np.zeros(len(moved), np.bool_)
    in_trip[there], in_trip[back] = True, True
    change = np.zeros(len(order) + 1, np.int64)  # +1 at the beginning of a round trip, -1 at its end
    np.add.at(change, first, 1)
    np.add.at(change, last, -1)
    inside = np.cumsum(change)[: len(order)] > 0
    return RoundTrips(len(there), moved.only(in_trip), np.flatnonzero(inside & computes), order)


def elements(trace: Trace, rows: IntArray) -> IntArray:
    """Return the number of elements of each operator's largest input, shape (len(rows),); -1 if shapes are unknown.
    They are also unknown if an input is a list of tensors whose shapes some profilers leave out."""
    codes = trace.codes("shapes")
    largest = np.full(len(codes.values), -1, np.int64)
    for code, text in enumerate(codes.values):
        try:
            largest[code] = _elements(msgspec.json.decode(text))
        except (msgspec.DecodeError, RecursionError):
            continue
    counts: IntArray = codes.lookup(largest, -1)[rows]
    nested = codes.lookup(np.array(["[[" in text[1:] for text in codes.values], np.bool_), True)[rows]
    dtypes = trace.codes("dtypes")
    lists = dtypes.lookup(np.array(["TensorList" in text for text in dtypes.values], np.bool_), False)[rows]
    return np.where(lists & ~nested, -1, counts)


def _elements(shape: object) -> int:  # an input that is a list of tensors is nested one level deeper
    if not isinstance(shape, list):
        return -1
    if all(isinstance(size, int) for size in shape):
        return int(np.prod(shape, dtype=np.float64)) if shape else 1
    return max((_elements(inner) for inner in shape), default=-1)


def calibrated(trace: Trace) -> Calibration | None:
    """Return the calibration of this machine for the framework and a device of the recording; None if there is none."""
    from perfkit_core.measure.calibration import calibrate

    models = {device.name for device in trace.meta.devices if device.name}
    calibrations = (calibrate.newest(trace.meta.framework or "", model) for model in sorted(models))
    return next((calibration for calibration in calibrations if calibration is not None), None)


def on_host_ns(facts: RuleInput, order: OuterOperators, canonical: str) -> Quantity:
    """Return the host time of a canonical operator on tiny tensors. The time comes from this recording, else from the
    calibration of this machine, else from public recordings."""
    trace = facts.trace
    same = trace.rows("op_name", canonical)[order.row] & (order.works == 0)
    count = elements(trace, order.row)
    same &= (count >= 0) & (count <= facts.thresholds.tiny_elements)
    measured = calibrated(trace)
    elsewhere = measured.host_ns(canonical) if measured else None
    return _recorded(trace.ints("dur_ns")[order.row[same]], elsewhere or HOST_NS)


def launching_ns(facts: RuleInput, order: OuterOperators) -> Quantity:
    """Return the host time of an operator that launches one kernel, from this recording or from public recordings."""
    launches_one = (order.works == 1) & (order.kernels == 1)
    return _recorded(facts.trace.ints("dur_ns")[order.row[launches_one]], LAUNCH_NS)


def on_device_ns(bytes_each: float, ns_per_byte: Quantity) -> Quantity:
    """Return the device time of an operator that processes this many bytes, including the start of its kernel."""
    low, mid, high = (_KERNEL_START_NS + bytes_each * ns for ns in (ns_per_byte.low, ns_per_byte.mid, ns_per_byte.high))
    return Quantity(low, mid, high, ns_per_byte.source)


def _recorded(dur_ns: IntArray, otherwise: Quantity) -> Quantity:
    if len(dur_ns) < _ENOUGH:
        return otherwise
    low, mid, high = np.quantile(dur_ns, [0.25, 0.5, 0.75]).tolist()
    return Quantity(low, mid, high, message("recorded: quartiles of {count:count} calls", count=len(dur_ns)))
