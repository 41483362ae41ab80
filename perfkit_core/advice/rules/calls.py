"""What rules about operators share: the outermost ones, all that belongs to a call, and what launches work."""

from __future__ import annotations

import re

import numpy as np

from perfkit_core import grouped, nesting
from perfkit_core.advice.facts import Facts
from perfkit_core.schema import KERNEL, OPERATOR, OPERATOR_DETAIL
from perfkit_core.trace import BoolArray, IntArray, Trace


def operators(trace: Trace) -> BoolArray:
    """True for operators on host threads, shape (rows,)."""
    found: BoolArray = trace.host & trace.rows("kind", OPERATOR)
    return found


def outermost(trace: Trace) -> IntArray:
    """Rows of the operators that lie in no other operator."""
    return np.flatnonzero(nesting.is_own(nesting.outermost(trace.ints("parent"), operators(trace))))


def whole_call(trace: Trace, rows: IntArray) -> IntArray:
    """For each operator the recorded entry of the framework around it that holds no other, else itself."""
    parent, mask = trace.ints("parent"), operators(trace)
    inside = np.bincount(parent[mask & (parent >= 0)], minlength=len(trace))
    above = parent[rows]
    entry = (above >= 0) & trace.rows("kind", OPERATOR_DETAIL)[above] & (inside[above] == 1)
    return np.where(entry, above, rows)


def in_steps(facts: Facts, rows: IntArray) -> IntArray:
    """Those of the rows that belong to a step; all where no steps were recorded."""
    return rows[facts.trace.ints("step")[rows] >= 0] if facts.has_steps else rows


def named(trace: Trace, pattern: str) -> BoolArray:
    """True for events whose name holds the pattern, whatever the case, shape (rows,)."""
    words, names = re.compile(pattern, re.IGNORECASE), trace.codes("name")
    found: BoolArray = names.lookup(np.array([bool(words.search(name)) for name in names.values], np.bool_), False)
    return found


def kernels_below(trace: Trace, rows: IntArray) -> IntArray:
    """Kernels launched by the rows or by what is below them."""
    chosen = np.zeros(len(trace) + 1, np.bool_)  # the last one stands for no launch
    chosen[rows] = True
    chosen[:-1] |= nesting.lies_in(trace.ints("parent"), chosen[:-1])
    return np.flatnonzero(trace.rows("kind", KERNEL) & chosen[trace.ints("launched_by")])


def step_groups(trace: Trace, rows: IntArray) -> IntArray:
    """A number for each step of each rank, shape (len(rows),)."""
    return grouped.distinct([trace.ints("rank")[rows], trace.ints("step")[rows]], len(rows))[0]


def per_step(facts: Facts, rows: IntArray, values: IntArray | None = None) -> IntArray:
    """What the values of the rows (None: 1 each) sum up to in each step, shape (steps,)."""
    total = np.zeros(len(facts.steps), np.int64)
    step = facts.steps.position(facts.trace, rows)
    np.add.at(total, step[step >= 0], 1 if values is None else values[step >= 0])
    return total


def typical(facts: Facts, rows: IntArray, values: IntArray | None = None) -> float:
    """Median over the steps of what the values of the rows (None: 1 each) sum up to."""
    return float(np.median(per_step(facts, rows, values))) if len(facts.steps) else 0.0


def without(facts: Facts, part_ns: IntArray) -> int:
    """What the typical step gets shorter by when each step loses such a part, shape (steps,), and nothing waits."""
    return facts.step_ns - max(int(facts.typical(facts.steps.recorded_ns - part_ns)), 0)
