"""What it costs to call an operator, whatever its work."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.operators import operator_order
from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.replay.transforms import Quantity

_QUANTILE: Final = 0.1


def call_ns(facts: Facts) -> float:
    """Return the time in ns of calling an operator: a low quantile of the times of all outermost operators."""
    rows = operator_order(facts.trace).row
    return float(np.quantile(facts.trace.ints("dur_ns")[rows], _QUANTILE)) if len(rows) else 0.0


def calling_factor(facts: Facts, rows: IntArray, left: float, work: Quantity) -> Quantity:
    """Return by which factor the time of the operators in ``rows`` changes if only the share ``left`` of the calls
    remains, and the work in all calls takes ``work`` times as long."""
    spent = max(float(facts.trace.ints("dur_ns")[rows].sum()), 1.0)
    calls = min(call_ns(facts) * len(rows), spent)
    low, mid, high = ((calls * left + (spent - calls) * factor) / spent for factor in work.ends)
    return Quantity(low, mid, high, work.source)
