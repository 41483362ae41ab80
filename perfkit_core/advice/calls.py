"""What it costs to call an operator, whatever its work."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.advice.operators import operator_order
from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.replay.transforms import Quantity

_MOST_NS: Final = 20_000
"""Calling an operator takes at most this time, also in a recording."""
_LONG_NS: Final = 300_000
"""Operators of at least this time do not get faster by more work in one call."""
_LONG_WORK: Final = 0.7, 1.0, 1.1
"""Factors by which their time may change."""


def call_ns(facts: RuleInput) -> float:
    """Return the time in ns of calling an operator: the median time of all outermost operators, if it is short enough
    to be mostly the call."""
    rows = operator_order(facts.trace).row
    return min(float(np.median(facts.trace.ints("dur_ns")[rows])), _MOST_NS) if len(rows) else 0.0


def calling_factor(facts: RuleInput, rows: IntArray, left: float, work: Quantity) -> Quantity:
    """Return by which factor the time of the operators in ``rows`` changes if only the share ``left`` of the calls
    remains, and the work in all calls takes ``work`` times as long. Long operators use the processor well already, so
    their work takes as long in one call."""
    dur = facts.trace.ints("dur_ns")[rows]
    called = np.minimum(dur, call_ns(facts))
    worked, is_long = dur - called, dur >= _LONG_NS
    short, long = float(worked[~is_long].sum()), float(worked[is_long].sum())
    ends = zip(work.ends, _LONG_WORK, strict=True)
    spent, calls = max(float(dur.sum()), 1.0), float(called.sum())
    low, mid, high = ((calls * left + short * factor + long * same) / spent for factor, same in ends)
    return Quantity(low, mid, high, work.source)
