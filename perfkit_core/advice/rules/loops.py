"""Rule 19: a loop selects a part of a tensor in each of its rounds."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Assumption, Candidate
from perfkit_core.advice.rules import calls
from perfkit_core.advice.rules.phrases import counted, part_of_step
from perfkit_core.advice.rules.rounds import Rounds, rounds
from perfkit_core.language import in_english, say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.edits.durations import Scale
from perfkit_core.replay.quantity import Quantity
from perfkit_core.trace import IntArray

LEFT: Final = Quantity(
    0.05,
    0.2,
    0.35,
    in_english("measured on CPU, torch 2.13 and paddle 3.3: one unbind against 20 to 100 selections, both passes"),
)


def select_loops(facts: Facts) -> list[Candidate]:
    """Rule 19: ten or more selections in rounds that call the same operators."""
    trace = facts.trace
    found = rounds(trace, facts.thresholds.loop_selects)
    kept = np.isin(found.rows, calls.in_steps(facts, found.rows))
    found = Rounds(found.rows[kept], found.loop[kept], found.each[kept])
    return [_unbound(facts, found, _gradients(facts, found.rows))] if len(found.rows) else []


def _gradients(facts: Facts, selects: IntArray) -> IntArray:
    """The outermost operators of the backward pass that belong to the selections: by the recorded number, else those
    of a selection in steps that hold no other selections."""
    trace = facts.trace
    roots = calls.outermost(trace)
    nodes = roots[trace.rows("op_name", "slice_grad")[roots] & (facts.replay.first[roots] >= 0)]
    number = trace.ints("sequence")
    known = number[selects][number[selects] >= 0]
    if len(known) and (number[nodes] >= 0).any():
        return nodes[np.isin(number[nodes], known)]
    forward = roots[trace.rows("op_name", "slice")[roots] & ~trace.rows("phase", "backward", "optimizer")[roots]]
    others = np.unique(trace.ints("step")[np.setdiff1d(forward, selects)])
    mixed = np.isin(trace.ints("step")[nodes], others)
    return nodes[~mixed & np.isin(trace.ints("step")[nodes], trace.ints("step")[selects])]


def _unbound(facts: Facts, found: Rounds, gradients: IntArray) -> Candidate:
    trace = facts.trace
    rows = calls.whole_call(trace, found.rows)
    every = np.append(rows, gradients)
    taken = calls.typical(facts, every, trace.ints("dur_ns")[every])
    loops = np.bincount(found.loop)
    count = int(np.median(loops[loops > 0] // found.each[np.flatnonzero(np.diff(found.loop, prepend=-1))]))
    name = trace.codes("name").values[trace.codes("name").codes[found.rows[0]]]
    return Candidate(
        say(
            "a loop of {counted} selects a part of a tensor in each ({name}): {part}, the backward pass of the "
            "selections included",
            counted=counted(count, in_english("round"), in_english("rounds")),
            name=name,
            part=part_of_step(facts, taken),
        ),
        evidence={
            "rounds": count, "loops": int((loops > 0).sum()), "selections": len(found.rows),
            "backward_selections": len(gradients), "selecting_ns": round(taken), "step_ns": facts.step_ns,
        },
        rows=found.rows,
        edits=(Scale(every, LEFT),),
        ceiling_ns=calls.without(facts, calls.per_step(facts, every, trace.ints("dur_ns")[every])),
        preconditions=(say("the operators between two selections are the same in every round"),),
        vetoes=(say("long rounds, as layers of a network are, do not count"),),
        assumptions=(Assumption("selecting_factor", LEFT, LEFT.source),),
        risks=(say("where the rounds do not depend on each other, one operator for all of them saves far more"),),
        fill={"rounds": str(count)},
    )  # fmt: skip


RULES: Final = (Rule("select-loop", 19, 1, "Select once, not in every round", select_loops),)
