"""What is known of the difference of two runs: of their steps, for the same work, and what a gate says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfkit_core.comparison import normalise
from perfkit_core.comparison.gate.conditions import Condition
from perfkit_core.comparison.gate.outcomes import Gated, Outcome, outcomes
from perfkit_core.comparison.normalise import Normalised
from perfkit_core.comparison.samples.captures import Capture, capture, pooled
from perfkit_core.comparison.samples.noise import ON_DEVICE, between_runs
from perfkit_core.comparison.samples.statistics import SampleStatistics, of_steps
from perfkit_core.comparison.work import SAMPLE, work
from perfkit_core.trace import Trace


@dataclass(frozen=True, slots=True)
class Asked:
    """``per``: "sample", "token" or "flop"; ``amounts``: the work of a step of both, where it is given.
    ``conditions`` of the gate; ``noise``: the standard deviation of equal runs as a share, where it is known."""

    per: str | None = None
    amounts: tuple[int, ...] = ()
    conditions: tuple[Condition, ...] = ()
    noise: float | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Pair:
    """``whole``: base and other, captures pooled. ``steps`` is None where a side has none. ``normalised`` is what was
    asked for, or by samples where a step of both is known to have another number of them. ``between``: what single
    captures are taken to differ by; ``twice``: sources of the recordings that both sides hold."""

    whole: tuple[Trace, Trace]
    captures: tuple[tuple[Capture, ...], tuple[Capture, ...]]
    steps: SampleStatistics | None
    normalised: Normalised | None
    outcomes: tuple[Outcome, ...]
    between: float
    twice: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Pair({self.whole[0]!r}, {self.whole[1]!r}, {self.steps and self.steps.verdict})"


def pair(base: Sequence[Trace], other: Sequence[Trace], asked: Asked) -> Pair:
    """Compare two runs, each of one capture or more. Raises UsageError for what cannot be answered, ValueError for a
    side without captures."""
    sides = tuple(base), tuple(other)
    whole = pooled(sides[0]), pooled(sides[1])
    captures = tuple(map(capture, sides[0])), tuple(map(capture, sides[1]))
    between = between_runs(whole) if asked.noise is None else asked.noise
    samples = [[one.step_ns for one in side] for side in captures]
    steps = of_steps(samples[0], samples[1], between)
    by_work = _by_work(whole, captures, asked, between)
    gated = Gated(sides, steps if by_work is None or asked.per is None else by_work.statistics, between,
                  ON_DEVICE if asked.noise is None else asked.noise)  # fmt: skip
    return Pair(whole, captures, steps, by_work, outcomes(asked.conditions, gated), between, _twice(*sides))


def _twice(base: Sequence[Trace], other: Sequence[Trace]) -> tuple[str, ...]:
    """Sources of recordings with the same events on both sides, by whatever path they were read."""
    same = [(one, two) for one in base for two in other if len(one) and one.events.equals(two.events)]
    return tuple(dict.fromkeys(trace.meta.source for found in same for trace in found))


def _by_work(
    whole: tuple[Trace, Trace], captures: Sequence[Sequence[Capture]], asked: Asked, between: float
) -> Normalised | None:
    if asked.per is not None:
        return normalise.asked(asked.per, whole, captures, asked.amounts, between)
    base, other = (work(trace, SAMPLE, _given(asked, at)) for at, trace in enumerate(whole))
    known = all(sum(len(one.step) for one in side) for side in captures)
    if base is None or other is None or base.amount == other.amount or not known:
        return None
    return normalise.normalised(SAMPLE, base, other, captures, between)


def _given(asked: Asked, at: int) -> int | None:
    return asked.amounts[at] if asked.amounts else None
