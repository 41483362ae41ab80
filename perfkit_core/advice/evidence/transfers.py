"""Copies between host and device: which event asked for each, and how long the host waited for it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.advice.evidence.operators import matching
from perfkit_core.advice.facts import Facts
from perfkit_core.algorithms import intervals
from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.model.schema import ANNOTATION, MEMCPY, OPERATOR, OPERATOR_DETAIL, RUNTIME, SYNC
from perfkit_core.model.trace import Trace
from perfkit_core.views.select import threads

_MOVES: Final = ("copy", "cast", "item")
"""Operators that do nothing but move data."""
_MOVING: Final = re.compile(r"memcpy|\bitem\b|\bnumpy\b|\btolist\b|TensorCopy", re.IGNORECASE)
NESTED: Final = 8
"""Operators that move data are nested at most this deeply (to → _to_copy → copy_ → …)."""


@dataclass(frozen=True, slots=True)
class Transfers:
    """Copies between host and device with their launches, in the order of threads and launches, arrays of shape
    (copies,).

    ``row`` of the copy, ``call`` that launched it, ``sync`` the call after it in which the host waits for it (-1:
    none), ``owner`` the outermost event that does nothing but this copy (the call, where there is none), ``bytes`` (-1:
    unknown), ``to_host`` (else to the device), ``waited_ns`` in the call and in ``sync``.
    """

    row: IntArray
    call: IntArray
    sync: IntArray
    owner: IntArray
    bytes: IntArray
    to_host: BoolArray
    waited_ns: IntArray

    def __len__(self) -> int:
        return len(self.row)

    def only(self, kept: BoolArray) -> Transfers:
        """Return the copies for which ``kept`` is true."""
        return Transfers(*(getattr(self, name)[kept] for name in self.__slots__))

    @property
    def syncs(self) -> IntArray:
        """Rows of the calls in which the host waits for these copies."""
        return self.sync[self.sync >= 0]

    @property
    def everything(self) -> IntArray:
        """Rows of all that would not take place without these copies; what is inside them goes with them."""
        return np.unique(np.concatenate([self.owner, self.syncs]))


def transfers(facts: Facts) -> Transfers:
    """Return the copies of the steps between host and device; of the whole recording where there are no steps."""
    trace = facts.trace
    rows = np.flatnonzero(trace.rows("kind", MEMCPY) & (trace.ints("launched_by") >= 0) & facts.in_steps)
    call = trace.ints("launched_by")[rows]
    owner = _owners(trace, call)
    kinds = trace.codes("copy_kind")
    direction = kinds.lookup(np.array([kind[:4] for kind in kinds.values], "U4"), "")[rows]
    # an operator that reads a number copies to the host: some devices call host memory that they can reach their own
    direction = np.where(trace.rows("op_name", "item")[owner], "DtoH", direction)
    crossing = np.isin(direction, ("DtoH", "HtoD"))
    rows, call, owner, direction = rows[crossing], call[crossing], owner[crossing], direction[crossing]
    order = np.lexsort((trace.ints("start_ns")[call], threads(trace).code[call]))
    rows, call, owner, direction = rows[order], call[order], owner[order], direction[order]
    sync = _awaited_in(trace, call)
    waited = facts.waiting_ns[call] + np.where(sync >= 0, facts.waiting_ns[sync], 0)
    return Transfers(rows, call, sync, owner, trace.ints("bytes")[rows], direction == "DtoH", waited)


def wait_ceiling_ns(facts: Facts, own_ns: float) -> int:
    """Return what removing waits saves at most in a step: host and device together took no longer than one after the
    other, and will take no less than the longer of both; and ``own_ns``, the calls' own time."""
    activity, trace = facts.activity, facts.trace
    both = [np.concatenate(part) for part in zip(activity.compute, activity.copy, strict=True)]
    device = float(np.median(facts.within_steps(intervals.union(*both))))
    calls = trace.host & trace.rows("kind", SYNC, RUNTIME) & facts.in_steps
    host = max(facts.step_ns - facts.per_step(int(facts.waiting_ns[calls].sum())), 0)
    return round(min(host, device) + own_ns)


def _owners(trace: Trace, call: IntArray) -> IntArray:
    """Return the outermost event around each call in which nothing but the copy happens."""
    parent = trace.ints("parent")
    moves = trace.rows("kind", OPERATOR) & trace.rows("op_name", *_MOVES)
    moves |= matching(trace, "name", _MOVING.search) & trace.rows("kind", OPERATOR, OPERATOR_DETAIL, ANNOTATION)
    moves &= trace.host
    owner = call.copy()
    for _ in range(NESTED):
        above = parent[owner]
        owner = np.where((above >= 0) & moves[above], above, owner)
    return owner


def _awaited_in(trace: Trace, call: IntArray) -> IntArray:
    """Return the synchronisation that follows each call in the same operator before anything else is launched, -1."""
    launches = np.zeros(len(trace), np.bool_)
    launches[trace.ints("launched_by")[trace.ints("launched_by") >= 0]] = True
    syncs = trace.host & trace.rows("kind", SYNC)
    rows = np.flatnonzero(trace.host & (syncs | (launches & trace.rows("kind", RUNTIME))))
    rows = rows[np.lexsort((trace.ints("start_ns")[rows], threads(trace).code[rows]))]
    position = np.full(len(trace), -1, np.int64)
    position[rows] = np.arange(len(rows))
    following = np.append(rows, -1)[position[call] + 1]
    same = (position[call] >= 0) & (following >= 0) & syncs[following]
    same &= threads(trace).code[following] == threads(trace).code[call]
    same &= trace.ints("parent")[following] == trace.ints("parent")[call]
    return np.where(same, following, -1)
