"""Rule 19, select-loop: a loop selects a part of a tensor in each iteration.
Detected: ``loop_selects`` or more iterations with the same few operators, of which up to four are selections.
Iterations with many operators do not count, because the layers of a network repeat too.
Predicted: the step time if one unbind replaces the selections. Their backward pass becomes shorter, too."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.advice.operators import matching, name_of, operators, outermost
from perfkit_core.advice.rule_input import Candidate, RuleInput, assume
from perfkit_core.base.algorithms import arrays, groupby, nesting
from perfkit_core.base.language.messages import message, plural
from perfkit_core.replay.transforms import Quantity, Scale
from perfkit_core.trace.model.schema import ANNOTATION, BACKWARD, DATALOADER, FORWARD, OPERATOR_DETAIL, OPTIMIZER, STEP
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.select import threads

_SELECTING_FACTOR: Final = Quantity(
    0.05, 0.2, 0.35,
    message("measured on a CPU with torch 2.13 and paddle 3.3: one unbind compared with 20 to 100 selections"),
)  # fmt: skip
_LONGEST: Final = 24
"""Maximum number of operators per iteration. A recurrent cell has about 20, a transformer layer has more."""
_MOST_SELECTS: Final = 4
_SELECTS_BY_NAME: Final = re.compile(r"select|slice|narrow", re.IGNORECASE)
"""Names of operators that select a part of a tensor. The canonical name ``slice`` is not enough to find such operators,
because it also covers other views, such as ``as_strided``."""
_AROUND: Final = (STEP, ANNOTATION, FORWARD, BACKWARD, OPTIMIZER, DATALOADER)


@dataclass(frozen=True, slots=True)
class Rounds:
    """Selections in loops, sorted by thread and time. A selection is an operator that selects a part of a tensor. All
    arrays have the shape (selections,)."""

    rows: arrays.IntArray
    loop: arrays.IntArray  # number of the loop
    per_iteration: arrays.IntArray  # selections per iteration of this loop


def find(facts: RuleInput) -> list[Candidate]:
    trace, dur, parent = facts.trace, facts.trace.ints("dur_ns"), facts.trace.ints("parent")
    rounds = find_rounds(trace, facts.thresholds.loop_selects)
    in_steps = facts.in_steps[rounds.rows]
    rows, loop, per_iteration = rounds.rows[in_steps], rounds.loop[in_steps], rounds.per_iteration[in_steps]
    if not len(rows):
        return []
    # entry: an ``operator_detail`` event that contains a selection and no other operator; it becomes shorter, too
    inside = np.bincount(parent[operators(trace) & (parent >= 0)], minlength=len(trace))
    above = parent[rows]
    entry = (above >= 0) & trace.rows("kind", OPERATOR_DETAIL)[above] & (inside[above] == 1)
    gradients = _gradients(facts, rows)
    both = np.append(np.where(entry, above, rows), gradients)
    spent = facts.median_total(both, dur[both])
    loops = np.bincount(loop)
    count = int(np.median(loops[loops > 0] // per_iteration[np.flatnonzero(np.diff(loop, prepend=-1))]))
    return [Candidate(
        plural(
            "A loop of {n:count} iteration selects a part of a tensor in each iteration ({operator}). The selections "
            "and their backward pass take {time}.",
            "A loop of {n:count} iterations selects a part of a tensor in each iteration ({operator}). The selections "
            "and their backward pass take {time}.",
            count, operator=name_of(trace, rows[0]), time=facts.of_step(spent),
        ),
        evidence={
            "rounds": count, "loops": int((loops > 0).sum()), "selections": len(rows),
            "backward_selections": len(gradients), "selecting_ns": round(spent), "step_ns": facts.step_ns,
        },
        rows=rows,
        transforms=(Scale(both, _SELECTING_FACTOR),),
        ceiling_ns=facts.ceiling_ns(facts.totals(both, dur[both])),
        preconditions=(message("the operators between two selections are the same in every iteration"),),
        vetoes=(message("long iterations, such as one per layer of a network"),),
        assumptions=assume(selecting_factor=_SELECTING_FACTOR),
        risks=(message("If the iterations are independent, one operator for all of them saves far more."),),
        fill={"rounds": str(count)},
    )]  # fmt: skip


def _gradients(facts: RuleInput, selects: arrays.IntArray) -> arrays.IntArray:
    """Return the rows of the outermost backward operators of the selections in the rows ``selects``, matched by
    sequence number. If no numbers were recorded, match by step, and leave out steps that also have other selections."""
    trace = facts.trace
    roots = outermost(trace, operators(trace))
    nodes = roots[trace.rows("op_name", "slice_grad")[roots] & (facts.replay.first[roots] >= 0)]
    number, step = trace.ints("sequence"), trace.ints("step")
    recorded = number[selects][number[selects] >= 0]
    if len(recorded) and (number[nodes] >= 0).any():
        return nodes[np.isin(number[nodes], recorded)]
    forward = roots[trace.rows("op_name", "slice")[roots] & ~trace.rows("phase", BACKWARD, OPTIMIZER)[roots]]
    mixed = np.unique(step[np.setdiff1d(forward, selects)])
    return nodes[~np.isin(step[nodes], mixed) & np.isin(step[nodes], step[selects])]


def find_rounds(trace: Trace, least: float) -> Rounds:
    roots, thread = outermost(trace, operators(trace)), threads(trace)
    roots = roots[groupby.stable_order(thread.code[roots], len(thread))]
    selecting = matching(trace, "name", _SELECTS_BY_NAME.search) & trace.rows("op_name", "slice")
    selects = np.flatnonzero((selecting & ~trace.rows("phase", BACKWARD, OPTIMIZER))[roots])
    rows, length = roots[selects], np.diff(selects, append=0)
    # context: a number for the combination of thread, step and enclosing span of each selection
    around = nesting.nearest_above(trace.ints("parent"), trace.host & trace.rows("kind", *_AROUND))[rows]
    context = groupby.distinct([thread.code[rows], trace.ints("step")[rows], around], len(rows))[0]
    # body: a hash of the operators from each selection to the next: the sum of a random number for each name
    names = trace.codes("name")
    token = np.random.default_rng(0).integers(1, 1 << 40, len(names.values) + 1)
    body = np.diff(np.append(0, np.cumsum(token[names.codes[roots]]))[selects], append=0)
    per_iteration, begins = np.zeros(len(selects), np.int64), np.zeros(len(selects), np.bool_)
    for period in range(1, min(_MOST_SELECTS, len(selects) - 2) + 1):
        # repeats: whether context and body are the same one iteration later, and the iteration has few operators
        here, later, after = context[: -period - 1], context[period:-1], context[period + 1 :]
        repeats = (here == later) & (later == after) & (body[: -period - 1] == body[period:-1])
        repeats &= length[: -period - 1] <= _LONGEST // period
        # start, end: the range of selections in each loop, including its last iteration
        edges = np.diff(np.concatenate([[False], repeats, [False]]).astype(np.int8))
        start, end = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) + period + 1
        often = (end - start) // period >= least
        for low, high in zip(start[often], end[often], strict=True):
            if not per_iteration[low:high].any():
                per_iteration[low:high] = period
                begins[low] = True
    in_loop = per_iteration > 0
    return Rounds(rows[in_loop], np.cumsum(begins)[in_loop] - 1, per_iteration[in_loop])
