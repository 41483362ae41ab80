"""How much of a difference is because something happens more often, and how much because each call takes longer?

With calls c and time a call a on either side, c₁a₁ − c₀a₀ = (c₁ − c₀)(a₀ + a₁)/2 + (a₁ − a₀)(c₀ + c₁)/2: the first is
the count effect, the second the per-call effect. At the mean of both sides neither side is preferred: swapped, both
effects only change their sign. What only one side has is all count effect. Exact rational numbers, rounded once; the
per-call effect is what is left, so that the two sum to the difference.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms.arrays import IntArray

_MOST_STEPS: Final = 100_000
"""Calls of a step are a number of calls by a number of steps; a float of theirs tells both up to so many steps."""


def count_effects(
    base_ns: IntArray, other_ns: IntArray, base_calls: IntArray, other_calls: IntArray, base_n: int, other_n: int
) -> IntArray:
    """The count effect of each row, shape (rows,). Times are of one step, calls of ``base_n`` and ``other_n`` steps."""
    rows = zip(base_ns.tolist(), other_ns.tolist(), base_calls.tolist(), other_calls.tolist(), strict=True)
    return np.array([_count_effect(*row, base_n, other_n) for row in rows], np.int64)


def with_effects(table: pd.DataFrame) -> pd.DataFrame:
    """With count_effect_ns and per_call_effect_ns of each row's own base_ns, other_ns, base_calls and other_calls (of
    one step; missing: not counted)."""
    calls = [[_fraction(value) for value in table[f"{side}_calls"].fillna(0)] for side in ("base", "other")]
    rows = zip(table["base_ns"].tolist(), table["other_ns"].tolist(), *calls, strict=True)
    effects = [_count_effect(t0, t1, c0.numerator, c1.numerator, c0.denominator, c1.denominator)
               for t0, t1, c0, c1 in rows]  # fmt: skip
    count = np.array(effects, np.int64)
    return table.assign(count_effect_ns=count, per_call_effect_ns=table["other_ns"] - table["base_ns"] - count)


def _fraction(calls: float) -> Fraction:
    return Fraction(calls).limit_denominator(_MOST_STEPS)


def _count_effect(t0: int, t1: int, c0: int, c1: int, n0: int, n1: int) -> int:
    if not c0 or not c1:  # all of it: 0 calls took no time
        return t1 - t0 if c0 or c1 else 0
    # (c₁/n₁ − c₀/n₀) · (t₀n₀/c₀ + t₁n₁/c₁) / 2, over one denominator
    return _rounded((c1 * n0 - c0 * n1) * (t0 * n0 * c1 + t1 * n1 * c0), 2 * n0 * n1 * c0 * c1)


def _rounded(numerator: int, denominator: int) -> int:
    """To the nearest integer, halves away from zero: the same for both signs."""
    size = (2 * abs(numerator) + denominator) // (2 * denominator)
    return size if numerator >= 0 else -size


def shared_out(total_ns: Iterable[int], count: int) -> IntArray:
    """Sums over ``count`` windows as parts of their mean: integers that sum to the rounded mean of the sum. Each is
    within a nanosecond of its own mean."""
    passed = np.cumsum(np.array([0, *total_ns], np.int64))
    marks: IntArray = (2 * passed + count) // (2 * max(count, 1))
    return np.diff(marks)
