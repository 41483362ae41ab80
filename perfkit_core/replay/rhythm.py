"""Do long waits recur at a distance of their own?

Workers that are too few make their batches at the same time: so many calls as there are workers have one long wait.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.trace import BoolArray, IntArray

_LONG: Final = 0.5
_LONGEST: Final = 0.9
"""Waits are long from this share of such a quantile of them on."""
_EQUAL: Final = 3
"""So many equal distances are no chance; two, where there are no others."""
_MANY: Final = 2
"""Distances are many that are so many times as many as they are long: some are in each part of the recording."""
_MOST: Final = 64
"""Waits that are further apart are not those of workers that take turns."""


def period(waited_ns: IntArray, begins: BoolArray) -> int:
    """How far long waits are apart, given how long each call (or step) waits, 0 for not at all, and in which an epoch
    begins, both of shape (n,). 1 where they do not recur: a distance recurs that most of them have, or the mean of
    very many."""
    waits = waited_ns > 0
    if not waits.any():
        return 1
    long = np.flatnonzero(waits & (waited_ns >= _LONG * np.quantile(waited_ns[waits], _LONGEST)))
    epoch = np.cumsum(begins)[long]
    apart = np.diff(long)[epoch[1:] == epoch[:-1]]
    if len(apart) < 2:
        return 1
    usual, mean = int(np.median(apart)), round(float(np.mean(apart)))
    equal = int((apart == usual).sum())
    if equal >= max(min(_EQUAL, len(apart)), len(apart) / 2) and usual <= _MOST:
        return usual
    return mean if len(apart) >= _MANY * mean else 1
