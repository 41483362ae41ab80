"""Which copies cross between host and device, who asked for each, and how long did the host wait for it?"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.advice.facts import Facts
from perfkit_core.analyses.threads import threads
from perfkit_core.schema import ANNOTATION, MEMCPY, OPERATOR, OPERATOR_DETAIL, RUNTIME, SYNC
from perfkit_core.trace import BoolArray, IntArray, Trace

_MOVES: Final = ("copy", "cast", "item")
"""Operators that do nothing but bring data somewhere else."""
_MOVING: Final = re.compile(r"memcpy|\bitem\b|\bnumpy\b|\btolist\b|TensorCopy", re.IGNORECASE)
_DEEPEST: Final = 8
"""Operators that bring data somewhere are nested at most so deeply (to → _to_copy → copy_ → …)."""


@dataclass(frozen=True, slots=True)
class Transfers:
    """Copies between host and device with their launches, in the order of threads and launches, arrays of shape
    (copies,).

    ``row`` of the copy, ``call`` that launched it, ``sync`` the call behind it in which the host waits for it (-1:
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
        """Those for which ``kept`` is true."""
        return Transfers(*(getattr(self, name)[kept] for name in self.__slots__))

    @property
    def everything(self) -> IntArray:
        """Rows of all that would not take place without these copies; what is inside them goes with them."""
        return np.unique(np.concatenate([self.owner, self.sync[self.sync >= 0]]))


def transfers(facts: Facts) -> Transfers:
    """The copies of the steps between host and device; of the whole recording where there are no steps."""
    trace = facts.trace
    rows = np.flatnonzero(trace.rows("kind", MEMCPY) & (trace.ints("launched_by") >= 0) & in_steps(facts))
    call = trace.ints("launched_by")[rows]
    owner = _owners(trace, call)
    direction = _direction(trace, rows, owner)
    kept = direction != ""
    rows, call, owner, direction = rows[kept], call[kept], owner[kept], direction[kept]
    order = np.lexsort((trace.ints("start_ns")[call], threads(trace).code[call]))
    rows, call, owner, direction = rows[order], call[order], owner[order], direction[order]
    sync = _awaited_in(trace, call)
    waiting = waiting_ns(facts)
    waited = waiting[call] + np.where(sync >= 0, waiting[sync], 0)
    return Transfers(rows, call, sync, owner, trace.ints("bytes")[rows], direction == "DtoH", waited)


def in_steps(facts: Facts) -> BoolArray:
    """True for what belongs to a step, for everything where there are no steps, shape (rows,)."""
    return facts.trace.ints("step") >= 0 if facts.has_steps else np.ones(len(facts.trace), np.bool_)


def waiting_ns(facts: Facts) -> IntArray:
    """How much of its own time each host event waits, for a device or another thread, shape (rows,)."""
    trace, graph = facts.trace, facts.replay.graph
    nodes = np.flatnonzero(graph.on_host & (graph.row >= 0))
    busy = np.zeros(len(trace), np.int64)
    np.add.at(busy, graph.row[nodes], graph.dur_ns[nodes])
    waiting: IntArray = np.where(facts.replay.first >= 0, np.maximum(trace.ints("self_ns") - busy, 0), 0)
    return waiting


def operators_around(trace: Trace, rows: IntArray) -> list[str]:
    """Names of the innermost operators around some events."""
    parent = trace.ints("parent")
    operator = trace.host & trace.rows("kind", OPERATOR)
    at = rows.copy()
    for _ in range(_DEEPEST):
        at = np.where((at >= 0) & ~operator[at], parent[at], at)
    return names_of(trace, at[(at >= 0) & operator[at]])


def names_of(trace: Trace, rows: IntArray) -> list[str]:
    """Names of some events without repetition, the most frequent first; of equally frequent ones by the alphabet."""
    names = trace.codes("name")
    codes, counts = np.unique(names.codes[rows], return_counts=True)
    found = sorted(zip((-counts).tolist(), (names.values[code] for code in codes), strict=True))
    return [name for _, name in found]


def _direction(trace: Trace, rows: IntArray, owner: IntArray) -> np.ndarray:
    """DtoH, HtoD or nothing. What an operator that reads a number copies goes to the host: some devices call memory of
    the host that they can reach their own."""
    kinds = trace.codes("copy_kind")
    found = kinds.lookup(np.array([kind[:4] for kind in kinds.values], "U4"), "")[rows]
    found = np.where(trace.rows("op_name", "item")[owner], "DtoH", found)
    return np.where(np.isin(found, ("DtoH", "HtoD")), found, "")


def _owners(trace: Trace, call: IntArray) -> IntArray:
    """From each call outwards as long as nothing but the copy happens there."""
    names, parent = trace.codes("name"), trace.ints("parent")
    named = names.lookup(np.array([bool(_MOVING.search(name)) for name in names.values], np.bool_), False)
    moves = trace.rows("kind", OPERATOR) & trace.rows("op_name", *_MOVES)
    moves |= named & trace.rows("kind", OPERATOR, OPERATOR_DETAIL, ANNOTATION)
    moves &= trace.host
    owner = call.copy()
    for _ in range(_DEEPEST):
        above = parent[owner]
        owner = np.where((above >= 0) & moves[above], above, owner)
    return owner


def _awaited_in(trace: Trace, call: IntArray) -> IntArray:
    """The synchronisation that follows each call in the same operator before anything else is launched, -1."""
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
