"""What it costs to call an operator, whatever its work."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.operators import operator_order
from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.replay.transforms import Quantity

_MOST_NS: Final = 20_000
"""Calling an operator takes at most this time, also in a recording."""


def call_ns(facts: Facts) -> float:
    """Return the time in ns of calling an operator: the median time of all outermost operators, if it is short enough
    to be mostly the call."""
    rows = operator_order(facts.trace).row
    return min(float(np.median(facts.trace.ints("dur_ns")[rows])), _MOST_NS) if len(rows) else 0.0


def calling_factor(facts: Facts, rows: IntArray, left: float, work: Quantity) -> Quantity:
    """Return by which factor the time of the operators in ``rows`` changes if only the share ``left`` of the calls
    remains, and the work in all calls takes ``work`` times as long."""
    dur = facts.trace.ints("dur_ns")[rows]
    spent, calls = max(float(dur.sum()), 1.0), float(np.minimum(dur, call_ns(facts)).sum())
    low, mid, high = ((calls * left + (spent - calls) * factor) / spent for factor in work.ends)
    return Quantity(low, mid, high, work.source)
