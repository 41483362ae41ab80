"""How far do differences of samples spread when the samples are drawn again? The bootstrap in two stages.

Draws are seeded by what is drawn from, so swapped sides give the negated interval.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from perfkit_core import bootstrap
from perfkit_core.comparison.samples.noise import Samples

Of = Callable[..., Any]
_AT_ONCE: Final = 1 << 22


def count(side: Samples) -> int:
    """Samples of all captures; those of ranks are one."""
    return sum(map(len, side))


def interval(base: Samples, other: Samples, of: Of, level: float) -> tuple[int | None, int | None]:
    """The middle ``level`` of the differences, other less base, None where a side has one sample only.

    Order statistics rather than quantiles between them: they are the same from both ends."""
    if min(map(count, (base, other))) < 2:
        return None, None
    differences = np.sort(_drawn(other, of) - _drawn(base, of))
    outside = int(len(differences) * (1 - level) / 2)
    return round(float(differences[outside])), round(float(differences[-1 - outside]))


def _drawn(side: Samples, of: Of) -> npt.NDArray[np.float64]:
    """The statistic of samples drawn again: captures first, then steps inside of them (two stages)."""
    draw = np.random.default_rng(zlib.crc32(b"".join(np.asarray(one, np.float64).tobytes() for one in side)))
    if len({one.shape[1:] for one in side}) > 1:  # captures of other numbers of ranks
        side = [one.ravel() for one in side]
    if len(side) == 1:
        return bootstrap.medians(np.asarray(side[0], np.float64), draw, lambda drawn, axis: _over_all(drawn, of))
    flat, sizes = np.concatenate(side).astype(np.float64), np.array([len(one) for one in side])
    first, each = np.cumsum(sizes) - sizes, max(len(flat) // len(side), 1)
    rows = max(_AT_ONCE // (each * len(side)), 1)
    found = [_stages(flat, first, sizes, each, min(rows, bootstrap.DRAWS - at), draw, of)
             for at in range(0, bootstrap.DRAWS, rows)]  # fmt: skip
    return np.concatenate(found)


def _stages(
    flat: npt.NDArray[np.float64], first: npt.NDArray[Any], sizes: npt.NDArray[Any], each: int, draws: int,
    draw: np.random.Generator, of: Of,
) -> npt.NDArray[Any]:  # fmt: skip
    chosen = draw.integers(0, len(sizes), (draws, len(sizes)))[:, :, None]
    inside = (draw.random((draws, len(sizes), each)) * sizes[chosen]).astype(np.int64)
    return _over_all(flat[first[chosen] + inside], of)


def _over_all(drawn: npt.NDArray[Any], of: Of) -> npt.NDArray[Any]:
    """The statistic of each draw, shape (draws,)."""
    return np.asarray(of(drawn.reshape(len(drawn), -1), axis=1))
