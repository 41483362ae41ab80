"""Copies to the host that are followed by a copy back of as many bytes, and what the host computes in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.advice.evidence.placement import VIEWS, OuterOperators, only_allocates, outer_operators
from perfkit_core.advice.evidence.transfers import Transfers, transfers
from perfkit_core.advice.facts import Facts
from perfkit_core.algorithms import groupby
from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.views.select import threads

_NEAR: Final = 8
"""Operators between a copy to the host and the one back: with more, the data are hardly the same."""


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """The copies of round trips, there and back, and the ``operators`` that compute on the host within one, positions
    in ``order``. ``count``: how many round trips."""

    count: int
    copies: Transfers
    operators: IntArray
    order: OuterOperators

    def copies_ns(self, facts: Facts) -> float:
        """Return the host time of the copies in a step; a call after a copy lies beside its operator or in it."""
        dur, copies = facts.trace.ints("dur_ns"), self.copies
        apart = (copies.sync >= 0) & (copies.owner == copies.call)
        return facts.per_step(int(dur[np.unique(copies.owner)].sum() + dur[copies.sync[apart]].sum()))


def round_trips(facts: Facts, least_bytes: int, computing: bool) -> RoundTrips:
    """Return the round trips of at least so many bytes during which the host computes something (``computing``), or
    nothing: each copy to the host with the next one back of as many bytes, on its thread, in its step."""
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
    computes = _computes(facts, order)
    before = np.append(0, np.cumsum(computes))  # how many operators compute before each position
    placed &= (before[last] - before[first] > 0) == computing
    there, back, first, last = there[placed], back[placed], first[placed], last[placed]
    kept = np.zeros(len(moved), np.bool_)
    kept[there], kept[back] = True, True
    change = np.zeros(len(order) + 1, np.int64)  # +1 where a round trip begins, -1 where it ends: their sum is within
    np.add.at(change, first, 1)
    np.add.at(change, last, -1)
    inside = np.cumsum(change)[: len(order)] > 0
    return RoundTrips(len(there), moved.only(kept), np.flatnonzero(inside & computes), order)


def _computes(facts: Facts, order: OuterOperators) -> BoolArray:
    """Return the mask of the operators that compute on the host."""
    rows = order.row
    mask: BoolArray = (order.works == 0) & ~facts.trace.rows("op_name", *VIEWS)[rows]
    return mask & ~only_allocates(facts.trace, rows)
