"""Rules 3 and 5: data go to the host and come back, for nothing, or for an operator that has no place on the device."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.advice.evidence.host_costs import launching_ns
from perfkit_core.advice.evidence.outer_operators import OuterOperators, outer_operators
from perfkit_core.advice.evidence.round_trips import Trips, between, both, computed, trips_of
from perfkit_core.advice.evidence.transfers import Transfers, transfers
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Assumption, Candidate
from perfkit_core.advice.rules.phrases import each_period, millis, part, part_of_step, times, verb
from perfkit_core.advice.wording import several, size
from perfkit_core.language import in_english, say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.edits.placement import Move
from perfkit_core.replay.edits.removal import Remove
from perfkit_core.replay.quantity import Quantity

PASSES: Final = Quantity(
    2 / 2000, 4 / 1000, 20 / 400, in_english("prior: 2 to 20 passes over the data at 0.4 to 2 TB/s")
)
"""Device time of an operator in ns for each byte of its data."""
START_NS: Final = 2_000
"""What any kernel takes at least: typical of CUDA devices."""


def round_trips(facts: Facts) -> list[Candidate]:
    """Rule 3: as many bytes as were copied to the host are copied back, and nothing was computed with them."""
    facts.need_device()
    moved = transfers(facts)
    found = outer_operators(facts, moved.owner)
    trips = trips_of(facts, moved, found, facts.thresholds.round_trip_bytes)
    trips = trips.only(computed(facts, found, trips) == 0)
    return [_needless(facts, moved, trips)] if len(trips.there) else []


def host_fallback(facts: Facts) -> list[Candidate]:
    """Rule 5: an operator on the host between a copy of its data to there and one back."""
    facts.need_device()
    moved = transfers(facts)
    found = outer_operators(facts, moved.owner)
    trips = trips_of(facts, moved, found, facts.thresholds.fallback_bytes)
    trips = trips.only(computed(facts, found, trips) > 0)
    return [_fallback(facts, moved, found, trips)] if len(trips.there) else []


def _needless(facts: Facts, moved: Transfers, trips: Trips) -> Candidate:
    gone = both(moved, trips)
    spent = _spent_ns(facts, gone)
    total = facts.per_step(int(gone.bytes.sum()))
    return Candidate(
        say(
            "data go to the host and come back as they were {times} {period} ({size} copied): {part}",
            times=times(facts.per_step(len(trips.there))),
            period=each_period(facts),
            size=size(total),
            part=part(facts, spent),
        ),
        evidence={
            "round_trips_per_step": facts.per_step(len(trips.there)), "bytes_per_step": round(total),
            "copies_ns": round(spent), "step_ns": facts.step_ns,
        },
        rows=gone.owner,
        edits=(Remove(gone.everything),),
        preconditions=(say("as many bytes come back as went"), say("no operator computes on the host in between")),
        vetoes=(say("fewer bytes may be equal by chance"),),
        risks=(say("what the host does with the data outside of operators needs a copy of its own"),),
        direction="to device",
    )  # fmt: skip


def _fallback(facts: Facts, moved: Transfers, found: OuterOperators, trips: Trips) -> Candidate:
    trace = facts.trace
    gone = both(moved, trips)
    rows = found.row[between(facts, found, trips)]
    spent, copies = facts.per_step(int(trace.ints("dur_ns")[rows].sum())), _spent_ns(facts, gone)
    names = trace.codes("name")
    told = [names.values[code] for code in np.unique(names.codes[rows])]
    launch = launching_ns(facts, found)
    bytes_each = int(gone.bytes.sum()) / 2 / len(rows)
    low, mid, high = (START_NS + bytes_each * one for one in (PASSES.low, PASSES.mid, PASSES.high))
    device = Quantity(low, mid, high, PASSES.source)
    return Candidate(
        say(
            "{told} {verb} on the host, between copies of the data from the device and back: {spent} and {part}",
            told=several(told),
            verb=verb(len(told), "computes", "compute"),
            spent=millis(spent),
            part=part_of_step(facts, copies),
        ),
        evidence={
            "operators": told[:5], "operators_per_step": facts.per_step(len(rows)), "operators_ns": round(spent),
            "copies_ns": round(copies), "bytes_per_step": round(facts.per_step(int(gone.bytes.sum()))),
            "step_ns": facts.step_ns,
        },
        rows=rows,
        edits=(Move(rows, False, launch, device, gone.everything),),
        preconditions=(
            say("its data are copied to the host before and to the device behind it"),
            say("the copies are large"),
        ),
        assumptions=(
            Assumption("launch_ns", launch, launch.source),
            Assumption("device_ns", device, device.source),
        ),
        risks=(
            say("the operator may have no kernel for this device, type or shape: then another one must do its work"),
        ),
        direction="to device",
        fill={"operator": told[0]},
    )  # fmt: skip


def _spent_ns(facts: Facts, gone: Transfers) -> float:
    """In a step, on the host, for the copies; calls behind them lie beside their operator or in it."""
    dur, owner = facts.trace.ints("dur_ns"), gone.owner
    apart = (gone.sync >= 0) & (owner == gone.call)
    return facts.per_step(int(dur[np.unique(owner)].sum() + dur[gone.sync[apart]].sum()))


RULES: Final = (
    Rule("ping-pong-copies", 3, 1, "Keep data on the device", round_trips),
    Rule("cpu-fallback", 5, 1, "Run this operator on the device", host_fallback),
)
