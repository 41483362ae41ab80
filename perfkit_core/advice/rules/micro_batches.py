"""Rule 38, micro-batches: each update adds the gradients of several small batches.
Detected: several backward passes with the same operators in a step, and one update of the optimizer.
Predicted: the step time if one batch replaces them. Its work remains, the cost of calling operators does not."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.advice.calls import calling_factor
from perfkit_core.advice.operators import operator_order
from perfkit_core.advice.rule_input import Candidate, RuleInput, assume
from perfkit_core.base.algorithms import groupby, nesting
from perfkit_core.base.language.messages import message
from perfkit_core.replay.transforms import Quantity, Scale
from perfkit_core.trace.model.meta import THREADS
from perfkit_core.trace.model.schema import BACKWARD, FORWARD, OPTIMIZER

_WORK: Final = Quantity(
    0.2, 0.4, 0.9, message("estimate: the threads divide the work of large batches better, but these need more memory")
)
_WORK_OF_ONE: Final = Quantity(
    0.5, 0.8, 1.1, message("estimate: with one thread, large batches use vector units better, but need more memory")
)
_ALIKE: Final = 0.1
"""Backward passes are alike if their numbers of operators differ by at most this share."""
_FEWEST: Final = 3
"""Minimum number of operators of a backward pass."""


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_steps()
    trace, order = facts.trace, operator_order(facts.trace)
    every = order.row[trace.ints("step")[order.row] >= 0]
    every = every[~trace.rows("phase", OPTIMIZER)[every]]
    updates = trace.host & trace.rows("kind", OPTIMIZER)
    if nesting.lies_in(trace.ints("parent"), updates)[every[trace.rows("phase", BACKWARD)[every]]].any():
        return []  # an optimizer evaluates a closure again and again, such as LBFGS
    row = every[trace.rows("phase", FORWARD, BACKWARD)[every]]  # the engine runs other operators within a backward pass
    backward, steps = trace.rows("phase", BACKWARD)[row], trace.ints("step")[row]
    step, of_step = groupby.distinct([trace.ints("rank")[row], steps], len(row))  # a number for each rank and step
    # part: number of the forward or backward pass of each operator
    part = np.cumsum(np.append(True, (np.diff(backward.astype(np.int8)) != 0) | (np.diff(step) != 0))[: len(row)]) - 1
    if not len(part):
        return []
    first = np.flatnonzero(np.diff(part, prepend=-1))
    size = np.bincount(part)
    passes = np.flatnonzero(backward[first] & (size >= _FEWEST))
    numbers, counts = np.unique(step[first[passes]], return_counts=True)
    count = int(np.median(counts)) if len(counts) else 0
    if count < facts.thresholds.micro_batches:
        return []
    sizes = size[passes]
    if np.median(np.abs(sizes - np.median(sizes))) > _ALIKE * np.median(sizes):
        return []
    rows = every[np.isin(trace.ints("step")[every], steps[of_step[numbers]])]
    alone = not facts.on_device and facts.recorded_number(THREADS) == 1
    factor = calling_factor(facts, rows, 1 / count, _WORK_OF_ONE if alone else _WORK)
    spent = facts.mean_ns(rows)
    return [Candidate(
        message(
            "Each step runs {count:count} forward and backward passes with the same operators before it updates the "
            "parameters. They take {time}.",
            count=count, time=facts.of_step(spent),
        ),
        evidence={"passes": count, "operators_per_pass": int(np.median(sizes)), **facts.part("passes", spent)},
        rows=rows,
        transforms=(Scale(rows, factor),),
        ceiling_ns=round(spent),
        preconditions=(message("the passes of a step have the same operators"),),
        vetoes=(message("passes of different networks"),),
        assumptions=assume(remaining_factor=factor),
        risks=(
            message("One large batch needs more memory than a small one."),
            message("Layers that compute statistics of a batch, such as batch norm, behave differently."),
        ),
        conflicts=("unbatched-loop",),
        fill={"passes": str(count)},
    )]  # fmt: skip
