"""Rules 3 and 5: data go to the host and come back, for nothing, or for an operator that has no place on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core import grouped
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.host_costs import launching_ns
from perfkit_core.advice.model import Assumption, Candidate
from perfkit_core.advice.outer_operators import VIEWS, OuterOperators, outer_operators, reserves
from perfkit_core.advice.transfers import Transfers, transfers
from perfkit_core.advice.wording import each, ms, several, size
from perfkit_core.analyses.threads import threads
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.edits.placement import Move
from perfkit_core.replay.edits.removal import Remove
from perfkit_core.replay.quantity import Quantity
from perfkit_core.trace import BoolArray, IntArray

_NEAR: Final = 8
"""Operators between a copy to the host and the one back: more, and the data are hardly the same."""
PASSES: Final = Quantity(2 / 2000, 4 / 1000, 20 / 400, "prior: 2 to 20 passes over the data at 0.4 to 2 TB/s")
"""Device time of an operator in ns for each byte of its data."""
START_NS: Final = 2_000
"""What any kernel takes at least: typical of CUDA devices."""


@dataclass(frozen=True, slots=True)
class _Trips:
    """Pairs of copies, arrays of shape (pairs,): positions in the transfers ``there`` and ``back``, and the range of
    outermost operators between them, ``first`` to before ``last``."""

    there: IntArray
    back: IntArray
    first: IntArray
    last: IntArray

    def only(self, kept: BoolArray) -> _Trips:
        return _Trips(*(getattr(self, name)[kept] for name in self.__slots__))


def round_trips(facts: Facts) -> list[Candidate]:
    """Rule 3: as many bytes as were copied to the host are copied back, and nothing was computed with them."""
    facts.need_device()
    moved = transfers(facts)
    found = outer_operators(facts, moved.owner)
    trips = _trips(facts, moved, found, facts.thresholds.round_trip_bytes)
    trips = trips.only(_computed(facts, found, trips) == 0)
    return [_needless(facts, moved, trips)] if len(trips.there) else []


def host_fallback(facts: Facts) -> list[Candidate]:
    """Rule 5: an operator on the host between a copy of its data to there and one back."""
    facts.need_device()
    moved = transfers(facts)
    found = outer_operators(facts, moved.owner)
    trips = _trips(facts, moved, found, facts.thresholds.fallback_bytes)
    trips = trips.only(_computed(facts, found, trips) > 0)
    return [_fallback(facts, moved, found, trips)] if len(trips.there) else []


def _trips(facts: Facts, moved: Transfers, found: OuterOperators, least: int) -> _Trips:
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
    return _Trips(there[placed], back[placed], first[placed], last[placed])


def _computing(facts: Facts, found: OuterOperators) -> BoolArray:
    """Operators that compute on the host."""
    rows = found.row
    mask: BoolArray = (found.works == 0) & ~facts.trace.rows("op_name", *VIEWS)[rows] & ~reserves(facts.trace, rows)
    return mask


def _computed(facts: Facts, found: OuterOperators, trips: _Trips) -> IntArray:
    """How many operators compute on the host within each trip."""
    before = np.append(0, np.cumsum(_computing(facts, found)))
    counts: IntArray = before[trips.last] - before[trips.first]
    return counts


def _needless(facts: Facts, moved: Transfers, trips: _Trips) -> Candidate:
    gone = _both(moved, trips)
    spent = _spent_ns(facts, gone)
    total = facts.per_step(int(gone.bytes.sum()))
    return Candidate(
        f"{facts.per_step(len(trips.there)):.3g} times data go to the host and come back as they were ({size(total)} "
        f"copied): {ms(spent)} of the {ms(facts.step_ns)} ms {each(facts.has_steps)}",
        evidence={
            "round_trips_per_step": facts.per_step(len(trips.there)), "bytes_per_step": round(total),
            "copies_ns": round(spent), "step_ns": facts.step_ns,
        },
        rows=gone.owner,
        edits=(Remove(gone.everything),),
        preconditions=("as many bytes come back as went", "no operator computes on the host in between"),
        vetoes=("fewer bytes may be equal by chance",),
        risks=("what the host does with the data outside of operators needs a copy of its own",),
        direction="to device",
    )  # fmt: skip


def _fallback(facts: Facts, moved: Transfers, found: OuterOperators, trips: _Trips) -> Candidate:
    trace = facts.trace
    gone = _both(moved, trips)
    rows = found.row[_between(facts, found, trips)]
    spent, copies = facts.per_step(int(trace.ints("dur_ns")[rows].sum())), _spent_ns(facts, gone)
    names = trace.codes("name")
    told = [names.values[code] for code in np.unique(names.codes[rows])]
    launch = launching_ns(facts, found)
    bytes_each = int(gone.bytes.sum()) / 2 / len(rows)
    low, mid, high = (START_NS + bytes_each * one for one in (PASSES.low, PASSES.mid, PASSES.high))
    device = Quantity(low, mid, high, PASSES.source)
    return Candidate(
        f"{several(told)} computes on the host, between copies of its data from the device and back: {ms(spent)} and "
        f"{ms(copies)} of the {ms(facts.step_ns)} ms {each(facts.has_steps)}",
        evidence={
            "operators": told[:5], "operators_per_step": facts.per_step(len(rows)), "operators_ns": round(spent),
            "copies_ns": round(copies), "bytes_per_step": round(facts.per_step(int(gone.bytes.sum()))),
            "step_ns": facts.step_ns,
        },
        rows=rows,
        edits=(Move(rows, False, launch, device, gone.everything),),
        preconditions=("its data are copied to the host before and to the device behind it", "the copies are large"),
        assumptions=(
            Assumption("launch_ns", launch, launch.source),
            Assumption("device_ns", device, device.source),
        ),
        risks=("the operator may have no kernel for this device, type or shape: then another one must do its work",),
        direction="to device",
        fill={"operator": told[0]},
    )  # fmt: skip


def _both(moved: Transfers, trips: _Trips) -> Transfers:
    kept = np.zeros(len(moved), np.bool_)
    kept[trips.there], kept[trips.back] = True, True
    return moved.only(kept)


def _between(facts: Facts, found: OuterOperators, trips: _Trips) -> IntArray:
    """Positions of the operators that compute on the host within a trip."""
    change = np.zeros(len(found) + 1, np.int64)
    np.add.at(change, trips.first, 1)
    np.add.at(change, trips.last, -1)
    inside = np.cumsum(change)[: len(found)] > 0
    return np.flatnonzero(inside & _computing(facts, found))


def _spent_ns(facts: Facts, gone: Transfers) -> float:
    """In a step, on the host, for the copies; calls behind them lie beside their operator or in it."""
    dur, owner = facts.trace.ints("dur_ns"), gone.owner
    apart = (gone.sync >= 0) & (owner == gone.call)
    return facts.per_step(int(dur[np.unique(owner)].sum() + dur[gone.sync[apart]].sum()))


RULES: Final = (
    Rule("ping-pong-copies", 3, 1, "Keep data on the device", round_trips),
    Rule("cpu-fallback", 5, 1, "Run this operator on the device", host_fallback),
)
