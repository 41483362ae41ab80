"""What is known of the difference of two runs: of their steps, for the same work, and what a gate says.

What are several runs called? By the shortest part of their paths that tells them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final

from perfkit_core.compare import work as normalise
from perfkit_core.compare.gate.conditions import Condition
from perfkit_core.compare.gate.outcomes import Gated, Outcome, outcomes
from perfkit_core.compare.noise import ON_DEVICE, between_runs
from perfkit_core.compare.samples import Capture, capture, pooled
from perfkit_core.compare.statistics import SampleStatistics, of_steps
from perfkit_core.compare.work import SAMPLE, Normalised, work
from perfkit_core.model.trace import Trace


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


LONGEST: Final = 40
"""Characters: labels become headings of columns."""
_SUFFIXES: Final = (".gz", ".json", ".pb", ".trace", ".pt", ".parquet", ".perfkit")
"""Endings that tell the format, the outermost first."""


def distinguishing(paths: Sequence[PurePath]) -> list[str]:
    """A label for each path, no two alike: the last, else the first, of the parts in which they differ, or more of them
    where one is not enough; numbered where nothing tells them apart, or only a middle that is left out."""
    parts = _differing([list(path.parts) or [str(path)] for path in paths])  # the folder one is in has none
    for length in range(1, max(map(len, parts), default=0) + 1):
        for chosen in ([one[-length:] for one in parts], [one[:length] for one in parts]):
            whole = ["/".join(one) for one in _without_suffixes(chosen)]
            words = _differing([label.split("-") for label in whole], (-1,))
            for labels in (whole, ["-".join(one) for one in words]):
                short = [_short(label) for label in labels]
                if len(set(short)) == len(short):
                    return short
    return [f"{_short(_bare(path.name) or str(path))} ({at})" for at, path in enumerate(paths, 1)]


def _differing(parts: list[list[str]], ends: tuple[int, ...] = (0, -1)) -> list[list[str]]:
    """Without the folders, or words, at both ends that all of them have."""
    for end in ends:
        while len({one[end] for one in parts}) == 1 and all(len(one) > 1 for one in parts):
            for one in parts:
                del one[end]
    return parts


def _without_suffixes(parts: list[list[str]]) -> list[list[str]]:
    """Without the endings of files, unless these tell the runs apart."""
    bare = [[*one[:-1], _bare(one[-1])] for one in parts]
    return bare if len(set(map(tuple, bare))) == len(set(map(tuple, parts))) else parts


def _bare(name: str) -> str:
    for suffix in _SUFFIXES:
        if Path(name).suffix == suffix:
            name = name.removesuffix(suffix)
    return name


def _short(label: str) -> str:
    """The end tells more than the middle: files of runs begin alike."""
    if len(label) <= LONGEST:
        return label
    tail = LONGEST * 2 // 3
    return f"{label[: LONGEST - tail - 1]}…{label[-tail:]}"
