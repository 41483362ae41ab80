"""Rule 4: filled on the host, then copied to the device."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.advice.evidence.host_costs import launching_ns
from perfkit_core.advice.evidence.outer_operators import OuterOperators, elements, outer_operators, reserves
from perfkit_core.advice.evidence.transfers import Transfers, transfers
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Assumption, Candidate
from perfkit_core.advice.rules.phrases import each_period, part, times, verb
from perfkit_core.advice.wording import several, size
from perfkit_core.language import in_english, say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.edits.placement import Move
from perfkit_core.replay.quantity import Quantity
from perfkit_core.trace import IntArray

_FILLS: Final = ("fill", "arange", "random", "triangular", "one_hot")
_DIRECTLY_NS: Final = 100_000
"""A copy that begins later than this behind the filling is of something else."""
_ELEMENT: Final = 4
"""Bytes of a number, where only the shape was recorded."""
WRITTEN: Final = Quantity(1 / 2000, 1 / 800, 1 / 250, in_english("prior: a device writes 0.25 to 2 TB/s"))
"""Device time in ns for each byte that is filled."""
START_NS: Final = 2_000
"""What any kernel takes at least: typical of CUDA devices."""


def filled_on_host(facts: Facts) -> list[Candidate]:
    """Rule 4: an operator fills memory of the host, and the next one copies as much to the device."""
    facts.need_device()
    moved = transfers(facts)
    moved = moved.only(~moved.to_host)
    found = outer_operators(facts, moved.owner)
    at = _filled_by(facts, moved, found)
    kept = at >= 0
    return [_candidate(facts, moved.only(kept), found, at[kept])] if kept.any() else []


def _filled_by(facts: Facts, moved: Transfers, found: OuterOperators) -> IntArray:
    """Of each copy the position of the operator directly before its own that filled what it copies, -1."""
    trace = facts.trace
    own = found.of[moved.call]
    before = own - 1
    fills = trace.rows("op_name", *_FILLS)[found.row] & (found.works == 0) & ~reserves(trace, found.row)
    good = (before >= 0) & np.append(fills, False)[before]
    good &= own >= 0
    good &= np.append(found.thread, -1)[before] == np.append(found.thread, -1)[own]
    gap = trace.ints("start_ns")[np.append(found.row, -1)[own]] - trace.end_ns[np.append(found.row, -1)[before]]
    good &= gap <= _DIRECTLY_NS
    first = np.zeros(len(moved), np.bool_)
    first[np.unique(own, return_index=True)[1]] = True
    return np.where(good & first, before, -1)


def _candidate(facts: Facts, moved: Transfers, found: OuterOperators, at: IntArray) -> Candidate:
    trace = facts.trace
    rows = found.row[at]
    dur = trace.ints("dur_ns")
    spent = facts.per_step(int(dur[rows].sum() + dur[found.row[found.of[moved.call]]].sum()))
    names = trace.codes("name")
    told = [names.values[code] for code in np.unique(names.codes[rows])]
    total = int(_bytes(facts, moved, found).sum())
    launch = launching_ns(facts, found)
    each_bytes = total / len(rows)
    low, mid, high = (START_NS + each_bytes * one for one in (WRITTEN.low, WRITTEN.mid, WRITTEN.high))
    device = Quantity(low, mid, high, WRITTEN.source)
    return Candidate(
        say(
            "{told} {verb} memory of the host {times} {period}, which is then copied to the device ({size}): "
            "{part}",
            told=several(told),
            verb=verb(len(told), "fills", "fill"),
            times=times(facts.per_step(len(rows))),
            period=each_period(facts),
            size=size(facts.per_step(total)),
            part=part(facts, spent),
        ),
        evidence={
            "copies_per_step": facts.per_step(len(rows)), "operators": told[:5],
            "bytes_per_step": round(facts.per_step(total)), "call_ns": round(spent), "step_ns": facts.step_ns,
        },
        rows=rows,
        edits=(Move(rows, False, launch, device, moved.everything),),
        preconditions=(
            say("an operator that only fills memory runs on the host"),
            say("the next operator copies to the device"),
        ),
        assumptions=(Assumption("launch_ns", launch, launch.source), Assumption("device_ns", device, device.source)),
        risks=(say("random numbers of a device are others than those of the host"),) if _random(facts, rows) else (),
        direction="to device",
        fill={"operator": told[0]},
    )  # fmt: skip


def _bytes(facts: Facts, moved: Transfers, found: OuterOperators) -> IntArray:
    """What each copy moves; where that was not recorded, by the shape of what its operator copies."""
    count = elements(facts.trace, found.row[found.of[moved.call]])
    return np.where(moved.bytes >= 0, moved.bytes, np.maximum(count, 0) * _ELEMENT)


def _random(facts: Facts, rows: IntArray) -> bool:
    return bool(facts.trace.rows("op_name", "random")[rows].any())


RULES: Final = (Rule("fill-then-copy", 4, 1, "Create tensors where they are needed", filled_on_host),)
