"""Which copies to the host are followed by a copy back of as many bytes, and what does the host do in between?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core import grouped
from perfkit_core.advice.evidence.outer_operators import VIEWS, OuterOperators, reserves
from perfkit_core.advice.evidence.transfers import Transfers
from perfkit_core.advice.facts import Facts
from perfkit_core.analyses.threads import threads
from perfkit_core.trace import BoolArray, IntArray

_NEAR: Final = 8
"""Operators between a copy to the host and the one back: more, and the data are hardly the same."""


@dataclass(frozen=True, slots=True)
class Trips:
    """Pairs of copies, arrays of shape (pairs,): positions in the transfers ``there`` and ``back``, and the range of
    outermost operators between them, ``first`` to before ``last``."""

    there: IntArray
    back: IntArray
    first: IntArray
    last: IntArray

    def only(self, kept: BoolArray) -> Trips:
        """Those for which ``kept`` is true."""
        return Trips(*(getattr(self, name)[kept] for name in self.__slots__))


def trips_of(facts: Facts, moved: Transfers, found: OuterOperators, least: int) -> Trips:
    """Each copy to the host of at least so many bytes with the next one back of as many, on its thread, in its step."""
    trace = facts.trace
    at = np.flatnonzero(moved.bytes >= max(least, 1))
    keys = [threads(trace).code[moved.call[at]], trace.ints("step")[moved.row[at]], moved.bytes[at]]
    code, _ = grouped.sorted_codes(keys, len(at))
    at = at[np.lexsort((trace.ints("start_ns")[moved.call[at]], code))]
    code = np.sort(code)
    follows = np.flatnonzero((code[1:] == code[:-1]) & moved.to_host[at[:-1]] & ~moved.to_host[at[1:]])
    there, back = at[follows], at[follows + 1]
    first, last = found.of[moved.call[there]] + 1, found.of[moved.call[back]]
    placed = (first > 0) & (last >= 0) & (last - first >= 0) & (last - first <= _NEAR)
    return Trips(there[placed], back[placed], first[placed], last[placed])


def _computing(facts: Facts, found: OuterOperators) -> BoolArray:
    """Operators that compute on the host."""
    rows = found.row
    mask: BoolArray = (found.works == 0) & ~facts.trace.rows("op_name", *VIEWS)[rows] & ~reserves(facts.trace, rows)
    return mask


def computed(facts: Facts, found: OuterOperators, trips: Trips) -> IntArray:
    """How many operators compute on the host within each trip."""
    before = np.append(0, np.cumsum(_computing(facts, found)))
    counts: IntArray = before[trips.last] - before[trips.first]
    return counts


def both(moved: Transfers, trips: Trips) -> Transfers:
    """The copies of all trips, there and back."""
    kept = np.zeros(len(moved), np.bool_)
    kept[trips.there], kept[trips.back] = True, True
    return moved.only(kept)


def between(facts: Facts, found: OuterOperators, trips: Trips) -> IntArray:
    """Positions of the operators that compute on the host within a trip."""
    change = np.zeros(len(found) + 1, np.int64)
    np.add.at(change, trips.first, 1)
    np.add.at(change, trips.last, -1)
    inside = np.cumsum(change)[: len(found)] > 0
    return np.flatnonzero(inside & _computing(facts, found))
