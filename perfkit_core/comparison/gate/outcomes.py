"""Has something become worse than it may, by more than noise? One outcome a condition.

============  ====================================================================================================
failed        the limit is exceeded, and the difference is beyond noise (interval and noise band of the statistics)
within noise  the limit is exceeded, but equal runs may differ as much
passed        the limit is kept
cannot tell   the limit is exceeded, but there are too few steps to tell noise from a difference
============  ====================================================================================================

Only what failed fails. Samples are the steps; a number of a view is computed in each. Medians are compared for the step
time, means for all else, since what happens in every tenth step has a median of 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from perfkit_core.comparison.gate import view_samples
from perfkit_core.comparison.gate.conditions import BUDGET, CHANGE, Condition
from perfkit_core.comparison.gate.view_samples import Number
from perfkit_core.comparison.samples.noise import ON_DEVICE
from perfkit_core.comparison.samples.statistics import TOO_FEW, SampleStatistics, step_statistics
from perfkit_core.errors import UsageError
from perfkit_core.report.summary import choose_views
from perfkit_core.trace import Trace

FAILED: Final = "failed"
WITHIN_NOISE: Final = "within noise"
PASSED: Final = "passed"
CANNOT_TELL: Final = "cannot tell"
_FINE: Final = 10**9
"""Statistics count in whole numbers: shares and rates in billionths."""
_COUNTS: Final = ("calls", "steps", "bytes", "flops")
"""Ends of the columns that a process repeats exactly: no noise but what the steps show."""

Samples = Sequence[npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """``base``, ``other``, ``low`` to ``high`` (the interval of the difference) and ``noise`` in the unit of the column
    (ns, bytes, 1)."""

    condition: Condition
    result: str
    base: float
    other: float
    change_ratio: float | None
    low: float | None
    high: float | None
    noise: float | None


_OF_DEVICES: Final = ("kernels", "memcpy", "device")
"""Views of nothing but device work."""


@dataclass(frozen=True, slots=True)
class Gated:
    """Both sides as a gate needs them: the traces of each capture, the steps (by their work, where asked), and what
    single captures are taken to differ by (:func:`perfkit_core.comparison.samples.noise.between_runs`); ``of_device``:
    the same of device work."""

    traces: tuple[Sequence[Trace], Sequence[Trace]]
    steps: SampleStatistics | None
    between: float
    of_device: float = ON_DEVICE


def outcomes(conditions: Sequence[Condition], sides: Gated) -> tuple[Outcome, ...]:
    """Every condition on the two sides. Raises UsageError for what is not in the profiles."""
    return tuple(_outcome(one, sides) for one in conditions)


def _outcome(condition: Condition, sides: Gated) -> Outcome:
    if condition.column is None:
        if sides.steps is None:
            raise UsageError("step_time is not known: a side has no steps", "call the profiler's step()")
        return _judged(condition, sides.steps, 1)
    number = Number(choose_views([condition.view], single=True)[0], condition.column, condition.row)
    view_samples.check([trace for side in sides.traces for trace in side], number)
    base, other = (view_samples.samples(side, number) for side in sides.traces)
    for name, side in (("base", base), ("other", other)):
        if not sum(map(len, side)):
            raise UsageError(f"{number.name} is not known in {name}", "perfkit summary shows what was recorded")
    between = sides.of_device if _on_device(number) else sides.between
    return _compared(condition, base, other, between)


def _on_device(number: Number) -> bool:
    """Whether only devices work in what is counted."""
    return "device" in number.column or number.view.name in _OF_DEVICES


def _compared(condition: Condition, base: Samples, other: Samples, between: float) -> Outcome:
    column = condition.column or ""
    exact = column.endswith(_COUNTS)
    scale = 1 if exact or condition.in_time else _FINE
    sides = [[one * scale for one in side] for side in (base, other)]
    if exact and max(len(one) for side in sides for one in side) < 2:  # no steps: a count of the whole run, twice
        sides = [[np.repeat(one, 2) for one in side] for side in sides]
    found = step_statistics(sides[0], sides[1], np.mean, 0.0 if exact else between)
    return _judged(condition, found, scale)


def _judged(condition: Condition, found: SampleStatistics, scale: int) -> Outcome:
    def unscaled(value: int | None) -> float | None:
        return None if value is None else value / scale if scale > 1 else value

    exceeded, sure = _exceeded(condition, found, scale)
    result = PASSED if not exceeded else FAILED if sure else WITHIN_NOISE
    if exceeded and not sure and (found.noise is None or found.low is None):
        result = CANNOT_TELL
    return Outcome(
        condition, result, found.base / scale if scale > 1 else found.base,
        found.other / scale if scale > 1 else found.other, found.change_ratio,
        unscaled(found.low), unscaled(found.high), unscaled(found.noise),
    )  # fmt: skip


def _exceeded(condition: Condition, found: SampleStatistics, scale: int) -> tuple[bool, bool]:
    """Whether the limit is exceeded, and whether that is beyond noise."""
    sign = 1 if condition.upward else -1
    if condition.kind == BUDGET:
        over = sign * (found.other / scale - condition.limit)
        return over > 0, found.noise is not None and over * scale > found.noise / 2**0.5
    if condition.kind == CHANGE:
        change = float("inf") * found.difference if found.change_ratio is None else found.change_ratio
        exceeded = bool(found.difference) and sign * change > sign * condition.limit
    else:
        exceeded = sign * found.difference / scale > sign * condition.limit
    return exceeded, found.beyond_noise and found.verdict != TOO_FEW
