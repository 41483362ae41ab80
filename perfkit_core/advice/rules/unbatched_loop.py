"""Rule 37, unbatched-loop: a loop in Python calls small operators for one item after the other.
Detected: ``loop_rounds`` (4) or more rounds of the same operators that are not the layers of a network.
Predicted: the step time if one operator does the work of all rounds. The work remains, the cost of calling does not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from perfkit_core.advice.calls import calling_factor
from perfkit_core.advice.gaps import Gaps
from perfkit_core.advice.loops import Loop, backward_loops, forward_loops, outermost_loops
from perfkit_core.advice.operators import backward_of, name_of, names_of, operator_order, per_row, shapes_of, within
from perfkit_core.advice.rule_input import NO_ROWS, Candidate, RuleInput, assume
from perfkit_core.advice.transfers import MOVES, VIEWS, only_allocates
from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.base.language.messages import message, plural
from perfkit_core.base.operators.names import GRADIENT_SUFFIX
from perfkit_core.replay.host_segments import matching
from perfkit_core.replay.transforms import Quantity, Scale, Shorten
from perfkit_core.trace.model.schema import BACKWARD, OPTIMIZER
from perfkit_core.views.select import marked

_WORK: Final = Quantity(
    0.1, 0.3, 0.8, message("estimate: batched work is several times as fast; at worst it takes nearly as long")
)
_TIME_STEPS: Final = Quantity(
    0.4, 0.7, 1.2, message("estimate: a recurrent layer also computes one time step after the other")
)
_GATES: Final = 2
"""A recurrent cell calls at least this number of sigmoid functions, and also tanh."""
_CELL: Final = re.compile("cell", re.IGNORECASE)
_PARAMETERS: Final = frozenset(
    {
        "conv",
        "conv_transpose",
        "embedding",
        "rnn",
        "batch_norm",
        "layer_norm",
        "group_norm",
        "rms_norm",
        "bilinear",
        "mixture_of_experts",
    }
)
"""Operators that have parameters."""
_PRODUCTS: Final = ("matmul", "linear")
"""Operators that have parameters if their second input is a matrix."""
_LOOKUPS: Final = frozenset({"embedding", "gather", "slice", "index", "split"})
"""Operators that take a part of their input. A layer does not begin with one of them."""
_IN_PLACE: Final = re.compile(r"\w_(?= |$)")
"""Names of operators that change their input. If most do, without lookups, one tensor changes after the other."""
_MOST: Final = 3
"""Maximum number of loops that are reported."""


def find(facts: RuleInput) -> list[Candidate]:
    trace, order = facts.trace, operator_order(facts.trace)
    kinds: dict[int, list[Loop]] = {}
    for loop in forward_loops(trace):
        if loop.rounds >= facts.thresholds.loop_rounds:
            kinds.setdefault(loop.kind, []).append(loop)
    owner = np.full(len(order.row), -1)  # for each operator, the index in `groups`
    groups: list[list[Loop]] = []  # loops that one change replaces
    # a loop has more operators than the loop around it if it is nearly all of that loop, or also runs elsewhere
    for loops in sorted(kinds.values(), key=lambda loops: -sum(loop.operators for loop in loops)):
        owners = [int(owner[loop.first : loop.last].max()) for loop in loops]
        free = [loop for loop, at in zip(loops, owners, strict=True) if at < 0]
        group = max(owners)
        if group < 0:
            if _is_stack_of_layers(facts, free):
                continue
            group = len(groups)
            groups.append([])
        groups[group] += free
        for loop in free:
            owner[loop.first : loop.last] = group
    ranked = [(loops, np.concatenate([order.row[loop.first : loop.last] for loop in loops])) for loops in groups]
    ranked.sort(key=lambda pair: -int(trace.ints("dur_ns")[pair[1]].sum()))
    candidates = (_candidate(facts, loops, rows) for loops, rows in ranked[:_MOST])
    return [candidate for candidate in candidates if candidate is not None]


def _candidate(facts: RuleInput, loops: Sequence[Loop], rows: IntArray) -> Candidate | None:
    trace, gradients = facts.trace, backward_of(facts.trace, rows)
    both = np.append(rows, gradients if len(gradients) else _gradients(facts, loops, rows))
    once = sum(loop.body for loop in loops) / len(rows)  # share of the calls that remain
    factor = calling_factor(facts, both, once, _TIME_STEPS if _is_recurrent(facts, loops, rows) else _WORK)
    gaps = _gaps(facts, both)
    waits = sum(int((end - start).sum()) for start, end in gaps.values())
    total = facts.mean_ns(both) + facts.per_step(waits)
    worked = within(trace, both)
    waiting = facts.per_step(int(facts.waiting_ns[worked].sum()))  # waiting is no work of the loop
    computing = rows[~trace.rows("op_name", *VIEWS)[rows] & ~only_allocates(trace, rows)]
    fewest = sum(loop.rounds for loop in loops)  # calls that make tensors from Python objects compute less often
    is_long = facts.exceeds(total - waiting, facts.thresholds.loop_share)
    if not is_long or len(computing) < fewest or not _computes(facts, both):
        return None
    names = names_of(trace, rows)
    kind = max(loops, key=lambda loop: loop.operators).kind
    rounds = round(float(np.median([loop.rounds for loop in loops if loop.kind == kind])))
    body = round(float(np.median([loop.operators / loop.rounds for loop in loops if loop.kind == kind])))
    kind_of_loop = _kind(facts, loops, rows, computing)
    return Candidate(
        plural(
            "A loop calls {n:count} operator in each of {rounds} iterations: {operators:list}. This takes {time}.",
            "A loop calls {n:count} operators in each of {rounds} iterations, such as {operators:list}. This takes "
            "{time}.",
            body, rounds=rounds, operators=names[:3], time=facts.of_step(total),
        ),
        evidence={
            "rounds": rounds, "operators_per_round": body, "loops_per_step": round(facts.per_step(len(loops)), 2),
            "calls_per_step": round(facts.per_step(len(both))), **facts.part("loop", total),
        },
        rows=rows,
        transforms=(Scale(both, factor), Shorten(gaps, once)),
        ceiling_ns=round(total),
        preconditions=(message("the iterations call the same operators, and they are not the layers of a network"),),
        vetoes=(message("iterations that are the layers of a network"),),
        assumptions=assume(remaining_factor=factor),
        risks=() if kind_of_loop == "updates" else (
            message("If iterations need the result of the one before, only a fused operator such as an LSTM helps."),
            message("Items of different sizes must be padded and masked."),
        ),
        conflicts=("select-loop", "host-gap", "launch-bound", "micro-batches"),
        fill={"operator": name_of(trace, rows[0])},
        words={"loop": kind_of_loop},
    )  # fmt: skip


def _kind(facts: RuleInput, loops: Sequence[Loop], rows: IntArray, computing: IntArray) -> str:
    """Return what the loops do, which decides the fix: ``updates`` of one tensor after the other, ``time-steps`` of a
    recurrent cell, ``lookups`` in tables, ``products``, or other work on ``items``."""
    trace = facts.trace
    in_place = matching(trace, "name", _IN_PLACE.search)[computing]
    if 2 * in_place.sum() > len(computing) and not trace.rows("op_name", *_LOOKUPS)[rows].any():
        return "updates"
    cells = trace.rows("op_name", "rnn") & matching(trace, "name", _CELL.search)  # others run whole sequences
    if cells[rows].any() or _is_recurrent(facts, loops, rows):
        return "time-steps"
    if trace.rows("op_name", "embedding")[rows].any():
        return "lookups"
    layers = trace.rows("op_name", "linear", *_PARAMETERS)[rows].any()
    return "products" if trace.rows("op_name", "matmul")[rows].any() and not layers else "items"


def _computes(facts: RuleInput, rows: IntArray) -> bool:
    """Return whether most of the time of the operators is computation: operators that only move data are no items of a
    batch, and of operators of unknown meaning nothing shows that they can be batched."""
    trace, dur = facts.trace, facts.trace.ints("dur_ns")
    meaning = trace.codes("op_name").codes[rows] >= 0
    moves = trace.rows("op_name", *MOVES)[rows]
    return 2 * int(dur[rows[meaning & ~moves]].sum()) > int(dur[rows].sum())


def _is_recurrent(facts: RuleInput, loops: Sequence[Loop], rows: IntArray) -> bool:
    """Return whether the loops call a recurrent cell that consists of several operators."""
    gates, squashed = (int(facts.trace.rows("op_name", name)[rows].sum()) for name in ("sigmoid", "tanh"))
    return gates >= _GATES * sum(loop.rounds for loop in loops) and squashed > 0


def _gradients(facts: RuleInput, found: Sequence[Loop], rows: IntArray) -> IntArray:
    """Return the backward operators of the operators in ``rows`` by their names, if no sequence numbers were recorded:
    the loops of the backward pass that only have gradients of these operators, at least one of them of an operator that
    runs nowhere else, or as many rounds as a loop that was ``found``. An engine may run the gradients of all
    activations first, and then those of all biases."""
    trace, order = facts.trace, operator_order(facts.trace)
    canonical = trace.codes("op_name")
    outside = order.row[(facts.in_steps & ~trace.rows("phase", BACKWARD, OPTIMIZER))[order.row]]
    codes, elsewhere = (np.unique(canonical.codes[part]) for part in (rows, np.setdiff1d(outside, rows)))
    inside, only_here = (
        {f"{canonical.values[code]}{GRADIENT_SUFFIX}" for code in part.tolist() if code >= 0}
        for part in (codes, np.setdiff1d(codes, elsewhere))
    )
    loops, rounds = [NO_ROWS], {loop.rounds for loop in found}
    for loop in outermost_loops(backward_loops(trace)):
        part = order.row[loop.first : loop.last]
        names = {canonical.values[code] for code in np.unique(canonical.codes[part]).tolist() if code >= 0}
        alike = bool(names & only_here) or loop.rounds in rounds
        if names - {"accumulate_grad"} <= inside and alike:
            loops.append(part)
    return np.concatenate(loops)


def _gaps(facts: RuleInput, rows: IntArray) -> Gaps:
    """Return the time between neighbouring operators of a phase that are both in ``rows``, for each rank."""
    trace, order = facts.trace, operator_order(facts.trace)
    chosen = marked(trace, rows)[order.row]
    both = np.flatnonzero(chosen[:-1] & chosen[1:] & (order.thread[:-1] == order.thread[1:]))
    begin, end = trace.end_ns[order.row[both]], trace.ints("start_ns")[order.row[both + 1]]
    rank = trace.ints("rank")[order.row[both]]
    phase, step = trace.codes("phase").codes[order.row], trace.ints("step")[order.row]
    is_gap = (end > begin) & (step[both] == step[both + 1]) & (phase[both] == phase[both + 1])
    is_gap &= ~only_allocates(trace, order.row[both])  # what was allocated is filled from Python objects
    gaps = Gaps()
    for number in facts.ranks:
        here = is_gap & (rank == number)
        sort = np.argsort(begin[here], kind="stable")
        gaps[number] = begin[here][sort], end[here][sort]
    return gaps


def _is_stack_of_layers(facts: RuleInput, loops: Sequence[Loop]) -> bool:
    """Return whether the rounds may be the layers of a network, which have parameters of their own. They are not if

    - there are more uses of parameters than parameters with gradients, so the rounds share parameters;
    - the round begins with a lookup, which takes a part of the data, and has no parameters of its own;
    - the features that a round returns cannot be the input of the next round.

    Rounds that only look up rows in tables of their own count as layers: one large table has as many gradients."""
    trace, order = facts.trace, operator_order(facts.trace)
    canonical = trace.codes("op_name")
    parametric = np.isin(canonical.values, list(_PARAMETERS))
    uses = np.append(parametric, False)[canonical.codes[order.row]]
    products = np.flatnonzero(trace.rows("op_name", *_PRODUCTS)[order.row])
    uses[products] = per_row(trace, order.row[products], lambda shapes: len(shapes) > 1 and len(shapes[1]) == 2, True)
    loop = loops[0]
    size = -(-loop.operators // loop.rounds)
    second = slice(loop.first + size, loop.first + 2 * size)  # the first round may begin in the layer before
    first = canonical.codes[order.row[loop.first]]
    inside = order.row[loop.first : loop.last][uses[loop.first : loop.last]]
    if not len(inside):
        return False
    in_loops = sum(int(uses[loop.first : loop.last].sum()) for loop in loops)
    parameters = int((trace.rows("op_name", "accumulate_grad") & facts.in_steps).sum())
    if 0 < in_loops <= parameters and trace.rows("op_name", "embedding")[inside].all():
        return True
    if (
        not parameters
        and trace.rows("op_name", "attention", "mixture_of_experts")[order.row[loop.first : loop.last]].any()
    ):
        return True  # blocks of a transformer in an inference
    if in_loops > parameters > 0:
        return False
    shapes = [_features(facts, row) for row in order.row[second][uses[second]]]
    features = [pair for pair in shapes if pair is not None]
    # with parameters of its own, a round may also look up the neighbours in a graph
    follows = not features or features[0][0] == features[-1][1]
    if 0 < in_loops <= parameters and follows:
        return True
    if first >= 0 and canonical.values[first] in _LOOKUPS:
        return False
    return follows


def _features(facts: RuleInput, row: int) -> tuple[int, int] | None:
    """Return the number of features that a layer takes and returns, None if its shapes are unknown."""
    shapes = facts.trace.codes("shapes")
    inputs = shapes_of(shapes.values[shapes.codes[row]]) if shapes.codes[row] >= 0 else []
    if len(inputs) < 2 or len(inputs[1]) < 2 or not inputs[0]:
        return None
    (out, in_features), values = inputs[1][:2], inputs[0]
    if len(inputs[1]) > 2:  # a convolution: its channels come after the batch
        return (values[1], out) if len(values) > 1 else None
    return values[-1], out if values[-1] == in_features else in_features
