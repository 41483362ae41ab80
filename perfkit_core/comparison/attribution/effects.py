"""How much of a difference is because something happens more often, and how much because each call takes longer?

With calls c and time a call a on either side, c₁a₁ − c₀a₀ = (c₁ − c₀)(a₀ + a₁)/2 + (a₁ − a₀)(c₀ + c₁)/2: the first is
the count effect, the second the per-call effect. At the mean of both sides neither side is preferred: swapped, both
effects only change their sign. What only one side has is all count effect. Exact rational numbers, rounded once; the
per-call effect is what is left, so that the two sum to the difference.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from perfkit_core.trace import IntArray


def count_effects(
    base_ns: IntArray, other_ns: IntArray, base_calls: IntArray, other_calls: IntArray, base_n: int, other_n: int
) -> IntArray:
    """The count effect of each row, shape (rows,). Times are of one step, calls of ``base_n`` and ``other_n`` steps."""
    rows = zip(base_ns.tolist(), other_ns.tolist(), base_calls.tolist(), other_calls.tolist(), strict=True)
    return np.array([_count_effect(*row, base_n, other_n) for row in rows], np.int64)


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
