"""Communication, computation and overlap as Paddle's Distribution Summary counts them.

Communication: host events of kind communication, operators whose name holds one of :data:`WORDS` (``broadcast_tensors``
too), every kernel launched inside either, and kernels named nccl or xccl. Computation: the other kernels, also those
launched below a communication event but not by it directly: they count as both. Calls are distinct (start, end) pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core import intervals, nesting
from perfkit_core.analyses.communication.distributed_rows import PARTS, Measured
from perfkit_core.analyses.native_rules import native_owners, native_steps
from perfkit_core.analyses.select import in_steps, selected
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.schema import COMMUNICATION, KERNEL, NO_ROW, OPERATOR
from perfkit_core.trace import BoolArray, Trace

WORDS: Final = ("allreduce", "broadcast", "rpc")
_KERNEL_WORDS: Final = ("nccl", "xccl")


@dataclass(frozen=True, slots=True)
class NativeCommunication:
    """Masks of shape (rows,): communication on the host and on a device, and computation."""

    host: BoolArray
    device: BoolArray
    computation: BoolArray


def native_communication(trace: Trace) -> NativeCommunication:
    """Which events Paddle counts as what."""
    operators = trace.rows("kind", OPERATOR) & _named(trace, WORDS)
    host = trace.host & (trace.rows("kind", COMMUNICATION) | operators)
    owner = native_owners(trace)
    kernels = trace.rows("kind", KERNEL) & (owner != NO_ROW)
    inside = nesting.nearest_on_path(trace.ints("parent"), host)[owner] != NO_ROW
    elsewhere = kernels & ~host[owner]
    named = elsewhere & _named(trace, _KERNEL_WORDS)
    return NativeCommunication(host, kernels & inside | named, elsewhere & ~named)


def measured(trace: Trace, request: ViewRequest) -> dict[int | None, Measured]:
    """The numbers of each rank."""
    chosen, rank = selected(trace, request), trace.ints("rank")
    talk, steps = native_communication(trace), native_steps(trace, in_steps(trace, request))
    masks = {one: rank == one for one in np.unique(rank).tolist()}
    return {one: _of_rank(trace, talk, chosen & mine, steps & mine) for one, mine in masks.items()}


def distinct(trace: Trace, mask: BoolArray) -> int:
    """Number of distinct (start, end) pairs."""
    pairs = np.stack([trace.ints("start_ns")[mask], trace.end_ns[mask]])
    return int(np.unique(pairs, axis=1).shape[1])


def _of_rank(trace: Trace, talk: NativeCommunication, chosen: BoolArray, steps: BoolArray) -> Measured:
    both = _union(trace, chosen & (talk.host | talk.device))
    compute = _union(trace, chosen & talk.computation)
    overlap = intervals.intersect(both, compute)
    alone = intervals.subtract(both, compute)
    times = map(intervals.length, (_union(trace, steps), both, compute, overlap, alone))
    host = {"communication": distinct(trace, chosen & talk.host)}
    device = {
        "communication": distinct(trace, chosen & talk.device),
        "computation": int((chosen & talk.computation).sum()),
    }
    return Measured(host, device, dict(zip(PARTS, times, strict=True)), None)


def _union(trace: Trace, mask: BoolArray) -> intervals.Intervals:
    return intervals.union(trace.ints("start_ns")[mask], trace.end_ns[mask])


def _named(trace: Trace, words: tuple[str, ...]) -> BoolArray:
    names = trace.codes("name")
    known = np.array([any(word in name.lower() for word in words) for name in names.values], np.bool_)
    found: BoolArray = names.lookup(known, False)
    return found
