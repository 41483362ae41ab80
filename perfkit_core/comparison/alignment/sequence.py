"""Which items of one sequence stand for which of another, when their order tells as much as their likeness?

Global alignment by dynamic programming: of all ways to pair items without crossing, the one whose pairs are alike the
most in sum. A pair that is less alike than ``least`` is no pair.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from perfkit_core.compiling import compiled

LEAST_LIKENESS = 0.35
"""Below this, two items are not the same thing: half a name in common is more, as are equal contents."""


def aligned(likeness: npt.NDArray[np.float64], least: float = LEAST_LIKENESS) -> list[tuple[int, int]]:
    """Pairs (row, column) in ascending order. ``likeness`` has a row for each item of one sequence and a column for
    each of the other, 0 (nothing in common) to 1 (the same)."""
    if not likeness.size:
        return []
    gain = np.where(likeness >= least, likeness, -1.0)
    rows, columns = _walk_back(gain, _best(gain))
    return list(zip(rows[::-1].tolist(), columns[::-1].tolist(), strict=True))


@compiled(steps=5)
def _best(gain):  # type: ignore[no-untyped-def]
    """Sum of the best pairs among the first i and j items."""
    n, m = gain.shape
    best = np.zeros((n + 1, m + 1))
    for i in range(n):
        for j in range(m):
            skipped = max(best[i, j + 1], best[i + 1, j])
            best[i + 1, j + 1] = max(skipped, best[i, j] + gain[i, j]) if gain[i, j] >= 0 else skipped
    return best


@compiled
def _walk_back(gain, best):  # type: ignore[no-untyped-def]
    i, j = gain.shape
    rows, columns = np.empty(min(i, j), np.int64), np.empty(min(i, j), np.int64)
    found = 0
    while i and j:
        if best[i, j] == best[i - 1, j]:
            i -= 1
        elif best[i, j] == best[i, j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            rows[found], columns[found] = i, j
            found += 1
    return rows[:found], columns[:found]
