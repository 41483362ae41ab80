"""Rule 1: operators on few numbers run on the device, and the host waits for what they find."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.advice.evidence.host_costs import READ_NS, on_host_ns
from perfkit_core.advice.evidence.outer_operators import (
    OuterOperators,
    elements,
    of_half,
    outer_operators,
    single_block,
)
from perfkit_core.advice.evidence.transfers import Transfers, names_of, transfers
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Assumption, Candidate, NotEvaluableError
from perfkit_core.advice.rules.phrases import counted, each_period, part, verb
from perfkit_core.advice.wording import several
from perfkit_core.language import in_english, say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.edits.contract import Edit
from perfkit_core.replay.edits.durations import Insert
from perfkit_core.replay.edits.placement import Move
from perfkit_core.replay.edits.removal import Remove
from perfkit_core.replay.edits.uncertain import InCases
from perfkit_core.replay.quantity import Case, Quantity
from perfkit_core.trace import BoolArray, IntArray

_VETOED: Final = (
    "random", "dropout", "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "send",
    "recv", "barrier", "pad", "interpolate", "tile",
)  # fmt: skip
"""Operators that have a state on the device, wait for other ranks, or make much of little."""
_MADE: Final = ("fill", "arange", "assign", "one_hot", "triangular")
"""Operators that make their result from what the host knows."""

_Costs = Mapping[str, tuple[IntArray, Quantity]]


@dataclass(frozen=True, slots=True)
class _Chains:
    """Operators on few numbers that run right before a result is fetched: positions among the outermost operators, and
    for each the position of the operator that fetches, shape (operators,). ``rooted``: what they compute with was made
    among them, shape (operators,)."""

    at: IntArray
    fetched_by: IntArray
    rooted: BoolArray


def tiny_operators(facts: Facts) -> list[Candidate]:
    """Rule 1: operators on at most 64 elements run on the device although the host needs what they find."""
    facts.need_device()
    moved = transfers(facts)
    fetched = moved.only(moved.to_host & (moved.bytes <= facts.thresholds.tiny_bytes))
    if not len(fetched):
        return []
    found = outer_operators(facts, moved.owner)
    chains = _chains(facts, found, fetched)
    return [_candidate(facts, found, chains, fetched)] if len(chains.at) else []


def _chains(facts: Facts, found: OuterOperators, fetched: Transfers) -> _Chains:
    """What runs before each result is fetched, as long as it is tiny."""
    trace = facts.trace
    fetches = np.zeros(len(found) + 1, np.bool_)
    fetches[found.of[fetched.call]] = True
    fetches = fetches[: len(found)]
    small = _tiny(facts, found) & ~fetches
    breaks = np.where(small, len(found), np.arange(len(found)))
    behind = np.minimum.accumulate(breaks[::-1])[::-1]
    known = np.append(fetches, False)
    feeds = small & known[behind]
    threads = np.append(found.thread, -1)
    step = np.append(trace.ints("step")[found.row], -2)
    feeds &= (threads[behind] == found.thread) & (step[behind] == step[: len(found)])
    rooted = np.zeros(len(found) + 1, np.bool_)
    rooted[behind[feeds & _made(facts, found)]] = True
    working = np.zeros(len(found) + 1, np.int64)
    np.add.at(working, behind[feeds], found.works[feeds])
    at = np.flatnonzero(feeds & (working[behind] > 0))
    return _Chains(at, behind[at], rooted[behind[at]])


def _tiny(facts: Facts, found: OuterOperators) -> BoolArray:
    """Operators on few numbers that could run on the host. Raises NotEvaluableError where nothing tells."""
    trace = facts.trace
    count, blocks = elements(trace, found.row), single_block(trace, found)
    if not (count >= 0).any() and not (blocks >= 0).any():
        raise NotEvaluableError(
            say(
                "results of few bytes are fetched, but neither shapes nor the blocks of kernels were recorded: nothing "
                "tells whether small operators compute them; record shapes (record_shapes=True)"
            )
        )
    few = np.where(count >= 0, count <= facts.thresholds.tiny_elements, blocks == 1)
    few |= (count < 0) & (found.works == 0)
    vetoed = trace.rows("op_name", *_VETOED)[found.row] | of_half(trace, found.row)
    tiny: BoolArray = few & (blocks != 0) & ~vetoed
    return tiny


def _made(facts: Facts, found: OuterOperators) -> BoolArray:
    """Operators that make something new, or bring it from the host."""
    made = facts.trace.rows("op_name", *_MADE)[found.row]
    moved = transfers(facts)
    at = found.of[moved.call[~moved.to_host]]
    made[at[at >= 0]] = True
    return made


def _candidate(facts: Facts, found: OuterOperators, chains: _Chains, fetched: Transfers) -> Candidate:
    trace = facts.trace
    rows = found.row[chains.at]
    sure = np.isin(found.of[fetched.call], chains.fetched_by[chains.rooted])
    unsure = np.isin(found.of[fetched.call], chains.fetched_by[~chains.rooted])
    names = names_of(trace, rows)
    every = facts.per_step(len(rows))
    spent = facts.per_step(int(trace.ints("dur_ns")[rows].sum()))
    costs = _costs(facts, found, rows)
    return Candidate(
        say(
            "{counted} {period} on at most {tiny_elements} elements ({names}) {verb} on the device, and the host "
            "waits for {copies} of what {verb2}: {part}",
            counted=counted(every, in_english("operator"), in_english("operators")),
            period=each_period(facts),
            tiny_elements=facts.thresholds.tiny_elements,
            names=several(names),
            verb=verb(every, "runs", "run"),
            copies=counted(facts.per_step(int((sure | unsure).sum())), in_english("copy"), in_english("copies")),
            verb2=verb(every, "it finds", "they find"),
            part=part(facts, spent),
        ),
        evidence={
            "operators_per_step": every, "operators": names[:5], "operators_ns": round(spent),
            "copies_per_step": facts.per_step(int((sure | unsure).sum())),
            "copies_saved_per_step": facts.per_step(int(sure.sum())), "step_ns": facts.step_ns,
        },
        rows=rows,
        edits=_edits(costs, fetched.only(sure), fetched.only(unsure)),
        preconditions=(say("few elements go in and out"), say("the host waits for the result before it goes on")),
        vetoes=(say("no half precision"), say("no random numbers"), say("no communication")),
        assumptions=tuple(Assumption(f"{name}_on_host_ns", cost, cost.source) for name, (_, cost) in costs.items()),
        risks=(say("what else reads these numbers on the device needs a copy of them"),),
        direction="to host",
        fill={"operator": names[0]},
    )  # fmt: skip


def _costs(facts: Facts, found: OuterOperators, rows: IntArray) -> _Costs:
    """By canonical name (or "other") the rows that move, and what each takes on the host."""
    codes = facts.trace.codes("op_name")
    own = codes.codes[rows]
    by_name = {codes.values[code] if code >= 0 else "other": rows[own == code] for code in np.unique(own)}
    return {name: (some, on_host_ns(facts, found, name)) for name, some in by_name.items()}


def _edits(costs: _Costs, sure: Transfers, unsure: Transfers) -> tuple[Edit, ...]:
    """The operators move. Copies go where what is fetched was made among them; else something on the device may feed
    them, and a copy of that stays unless all goes well."""
    edits: list[Edit] = [Move(rows, True, cost) for rows, cost in costs.values()]
    if len(sure):
        edits += [Remove(sure.everything), Insert(sure.owner, READ_NS)]
    if len(unsure):
        edits.append(InCases(Remove(unsure.everything), (Case.SHORT,)))
    return tuple(edits)


RULES: Final = (Rule("tiny-ops-on-device", 1, 1, "Compute small things on the host", tiny_operators),)
