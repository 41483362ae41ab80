"""The difference of two runs: of their steps, for the same work, and the outcomes of the gate."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path, PurePath
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.compare.gate.conditions import Condition, Gated, Outcome, outcomes
from perfkit_core.compare.noise import ON_DEVICE, ON_HOST, between_runs
from perfkit_core.compare.statistics import Capture, SampleStatistics, capture, of_steps, pooled, step_statistics
from perfkit_core.errors import UsageError
from perfkit_core.model.schema import BACKWARD, DATALOADER, OPTIMIZER
from perfkit_core.model.trace import Trace
from perfkit_core.views.steps.step_rows import step_rows

SAMPLE: Final = "sample"
TOKEN: Final = "token"
FLOP: Final = "flop"
RECORDED: Final[Mapping[str, tuple[str, ...]]] = {
    SAMPLE: ("samples_per_step", "num_samples", "batch_size", "global_batch_size"),
    TOKEN: ("tokens_per_step", "num_tokens"),
}
"""Metadata of a recording that tells it, such as ``profiler.add_metadata_json("batch_size", "64")`` of torch."""
_BATCH_FIRST: Final = ("conv", "conv_transpose", "batch_norm", "group_norm", "layer_norm", "pool")
"""Operators whose first input begins with the batch, unless a model folds another axis into it."""
_AGREE: Final = 0.5
"""Share of them that must have the same batch."""


@dataclass(frozen=True, slots=True)
class Work:
    """``amount`` of ``unit`` in a step, and where that is known from: "given", "recorded" or "shapes"."""

    unit: str
    amount: Fraction
    origin: str


def work(trace: Trace, unit: str, given: int | None = None) -> Work | None:
    """The work of a step, None where nothing tells."""
    if given is not None:
        return Work(unit, Fraction(given), "given")
    if unit == FLOP:
        return _flops(trace)
    for key in RECORDED[unit]:
        amount = _number(trace.meta.extra.get(key))
        if amount is not None:
            return Work(unit, amount, "recorded")
    batch = batch_of_shapes(trace) if unit == SAMPLE else None
    return None if batch is None else Work(unit, Fraction(batch), "shapes")


def batch_of_shapes(trace: Trace) -> int | None:
    """Samples of a step, as most operators have them that begin with the batch; None where that cannot be told.

    Only of runs with steps: what a rank computes at a time, without the other ranks, and of one forward pass."""
    rows = trace.operators & trace.rows("op_name", *_BATCH_FIRST)
    rows &= ~trace.rows("phase", BACKWARD, OPTIMIZER, DATALOADER) & (trace.ints("step") >= 0)
    shapes = trace.codes("shapes")
    codes, calls = np.unique(shapes.codes[rows], return_counts=True)
    found: Counter[int] = Counter()
    for code, count in zip(codes.tolist(), calls.tolist(), strict=True):
        size = _leading(shapes.values[code]) if code >= 0 else None
        if size:
            found[size] += count
    ((most, times),) = found.most_common(1) or [(0, 0)]
    return most if times > _AGREE * sum(found.values()) else None


def _leading(shapes: str) -> int | None:
    """The first axis of the first tensor that has several."""
    try:
        listed = json.loads(shapes)
    except ValueError:
        return None
    for one in _tensors(listed):
        if len(one) > 1 and all(isinstance(size, int) for size in one):
            return int(one[0])
    return None


def _tensors(listed: Any) -> Sequence[Sequence[Any]]:
    """Shapes in the order of the arguments, whether listed, named, or in lists of lists."""
    if isinstance(listed, dict):
        return [shape for value in listed.values() for shape in _tensors(value)]
    if not isinstance(listed, list) or not listed:
        return []
    return [listed] if all(isinstance(one, int) for one in listed) else [s for one in listed for s in _tensors(one)]


def _flops(trace: Trace) -> Work | None:
    """Operations of the outermost operators that were counted, in steps, by their number."""
    steps = len(np.unique(trace.ints("step")[step_rows(trace)]))
    counted = trace.host & (trace.ints("flops") > 0) & (trace.ints("step") >= 0)
    if not steps or not counted.any():
        return None
    above = nesting.nearest_above(trace.ints("parent"), counted)
    total = int(trace.ints("flops")[counted & (above == NO_ROW)].sum())
    return Work(FLOP, Fraction(total, steps), "recorded")


def _number(value: object) -> Fraction | None:
    try:
        amount = Fraction(str(value).strip().strip('"'))
    except ValueError:
        return None
    return amount if amount > 0 else None


QUANTITY: Final = {SAMPLE: 1, TOKEN: 1000, FLOP: 10**9}
"""Time is told for so many, so that integer ns are exact enough."""
NAMES: Final = {SAMPLE: "sample", TOKEN: "1000 tokens", FLOP: "GFLOP"}


@dataclass(frozen=True, slots=True)
class Normalised:
    """Step times by the work of a step. ``statistics`` is in ns for :data:`QUANTITY` of the unit."""

    unit: str
    base: Work
    other: Work
    statistics: SampleStatistics
    per_s: tuple[float, float]

    @property
    def name(self) -> str:
        """What it is per."""
        return NAMES[self.unit]

    @property
    def different_work(self) -> bool:
        """Whether a step does another amount of it."""
        return self.base.amount != self.other.amount


def normalised(
    unit: str, base: Work, other: Work, sides: Sequence[Sequence[Capture]], between: float = ON_HOST
) -> Normalised:
    """Compare steps by the work that they do; ``between`` as for :func:`step_statistics`.

    Raises ValueError where a side has no steps."""
    scaled = [[_scaled(one.step_ns, amount.amount, QUANTITY[unit]) for one in side]
              for side, amount in zip(sides, (base, other), strict=True)]  # fmt: skip
    whole = [float(np.median(np.concatenate([one.step_ns.ravel() for one in side]))) for side in sides]
    rates = tuple(float(one.amount) * 1e9 / ns if ns else 0.0 for one, ns in zip((base, other), whole, strict=True))
    return Normalised(unit, base, other, step_statistics(scaled[0], scaled[1], between=between), (rates[0], rates[1]))


def asked_work(
    unit: str,
    traces: Sequence[Trace],
    sides: Sequence[Sequence[Capture]],
    given: Sequence[int] = (),
    between: float = ON_HOST,
) -> Normalised:
    """The same of two traces; ``given``: the work of a step of both. Raises UsageError where nothing tells it."""
    found = [work(trace, unit, given[at] if given else None) for at, trace in enumerate(traces)]
    for trace, one in zip(traces, found, strict=True):
        if one is None:
            raise UsageError(f"{trace.meta.source}: nothing tells the {unit}s of a step", _HINTS[unit])
    if not all(sum(len(one.step_ns) for one in side) for side in sides):
        hint = "give the profiler a schedule, and call its step() after each iteration"
        raise UsageError(f"no step times to tell per {unit}", hint)
    base, other = (one for one in found if one is not None)
    return normalised(unit, base, other, sides, between)


_HINTS: Final = {
    SAMPLE: "--samples A,B gives them; shapes (record_shapes) may tell them, too",
    TOKEN: "--tokens A,B gives them",
    FLOP: "record with_flops=True, or perfkit record --flops",
}


def work_table(found: Sequence[Normalised]) -> pd.DataFrame:
    """Columns per, base_amount, other_amount (of a step), base_ns, other_ns, difference_ns (median step, for that much
    work), low_ns, high_ns (of the difference), change_ratio, base_per_s, other_per_s, verdict."""
    rows = []
    for one in found:
        s = one.statistics
        rows.append([
            one.name, float(one.base.amount), float(one.other.amount), s.base, s.other, s.difference, s.low, s.high,
            s.change_ratio, *one.per_s, s.verdict,
        ])  # fmt: skip
    columns = ["per", "base_amount", "other_amount", "base_ns", "other_ns", "difference_ns", "low_ns", "high_ns",
               "change_ratio", "base_units_per_s", "other_units_per_s", "verdict"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns).astype({"low_ns": "Int64", "high_ns": "Int64"})


def _scaled(step_ns: IntArray, amount: Fraction, quantity: int) -> IntArray:
    """ns for ``quantity`` units, to the nearest, halves to even; by integers, so that nothing is lost."""
    top, bottom = quantity * amount.denominator, amount.numerator
    scaled = [round(Fraction(ns * top, bottom)) for ns in step_ns.ravel().tolist()]
    return np.array(scaled, np.int64).reshape(step_ns.shape)


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
        return asked_work(asked.per, whole, captures, asked.amounts, between)
    base, other = (work(trace, SAMPLE, _given(asked, at)) for at, trace in enumerate(whole))
    known = all(sum(len(one.step) for one in side) for side in captures)
    if base is None or other is None or base.amount == other.amount or not known:
        return None
    return normalised(SAMPLE, base, other, captures, between)


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
