"""The comparison of two runs: their steps, their times for equal work, and the outcomes of the gate. The work of a step
is its number of samples, tokens or FLOPs. The number is given by the user, recorded, or inferred from shapes."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path, PurePath
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import arrays, nesting
from perfkit_core.base.language.messages import render
from perfkit_core.compare.equal_work import Repeated, compared_windows, repeated
from perfkit_core.compare.gate.conditions import Condition, Outcome, outcomes
from perfkit_core.compare.noise import GIVEN, ON_DEVICE, ON_HOST, Between, between_runs
from perfkit_core.compare.statistics import SampleStatistics, StepSamples, of_steps, pooled, samples_of, step_statistics
from perfkit_core.compare.windows import Windows, on_one_clock
from perfkit_core.errors import UsageError
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.trace.model.meta import OPERATORS_LEFT_OUT, SAMPLE, TOKEN, WORK_KEYS
from perfkit_core.trace.model.schema import BACKWARD, DATALOADER, OPTIMIZER
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.modules import layer_flops
from perfkit_core.views.operators.operator_work import operator_flops
from perfkit_core.views.steps.step_rows import step_rows

FLOP: Final = "flop"
QUANTITY: Final = {SAMPLE: 1, TOKEN: 1000, FLOP: 10**9}
"""Unit of work → amount to which times refer: ns per 1000 tokens, because integer ns per token would be imprecise."""
NAMES: Final = {SAMPLE: "sample", TOKEN: "1000 tokens", FLOP: "GFLOP"}
_HINTS: Final = {
    SAMPLE: "give the numbers with --samples A,B, or record shapes (record_shapes), from which they may be inferred",
    TOKEN: "give the numbers with --tokens A,B",
    FLOP: "record with record_shapes=True, or with perfkit record --shapes",
}
_BATCH_FIRST: Final = ("conv", "conv_transpose", "batch_norm", "group_norm", "layer_norm", "pool")
"""Operators whose first input usually has the batch as its first axis."""
_SAME_WORK: Final = Fraction(1, 100)
"""Amounts of work that differ by at most this share are equal."""
LONGEST: Final = 40
"""Maximum number of characters of a label. Labels are column headings."""
_SUFFIXES: Final = (".gz", ".json", ".pb", ".trace", ".pt", ".parquet", ".perfkit")
"""File name suffixes that are left out of labels, in the order in which they are removed."""


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """The options of a comparison.

    - ``per``: the unit of work by which step times are divided ("sample", "token" or "flop").
    - ``amounts``: the work of a step of base and of other.
    - ``conditions``: the conditions of the gate.
    - ``noise``: the relative standard deviation between equal runs, None if it is not given.
    - ``by``: the groupings of the table memory_peak.
    """

    per: str | None = None
    amounts: tuple[int, ...] = ()
    conditions: tuple[Condition, ...] = ()
    noise: float | None = None
    by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a step: ``amount`` of ``unit``. ``origin`` is "given", "recorded" or "shapes"."""

    unit: str
    amount: Fraction
    origin: str


@dataclass(frozen=True, slots=True)
class Normalised:
    """Step times for equal work."""

    unit: str
    base: Work
    other: Work
    statistics: SampleStatistics  # Times in ns per sample, per 1000 tokens or per GFLOP.
    per_s: tuple[float, float]  # Units of work per second, of base and of other.

    @property
    def name(self) -> str:
        """The amount of work to which the times refer, such as "1000 tokens"."""
        return NAMES[self.unit]


@dataclass(frozen=True, slots=True)
class Pair:
    """The comparison of two runs. Each tuple of two items holds base and other.

    - ``runs``: the captures of a side, on one clock. ``captures``: their steps.
    - ``traces``: the traces, with all captures of a side in one trace.
    - ``windows``: what is compared of each trace.
    - ``steps``: the statistics of the steps; None if a side has no steps.
    - ``per_call``: without steps, what both repeat, and the statistics of the time from one call of it to the next.
    - ``normalised``: the step times per unit of work. If no unit was requested, the unit is the first of sample, token
      and FLOP whose number per step is known for both runs and differs. Otherwise they are None.
    - ``between``: how much equal runs differ, if each side has one capture.
    - ``twice``: the sources of recordings that both sides contain.
    """

    runs: tuple[tuple[Trace, ...], tuple[Trace, ...]]
    traces: tuple[Trace, Trace]
    windows: tuple[Windows, Windows]
    captures: tuple[tuple[StepSamples, ...], tuple[StepSamples, ...]]
    steps: SampleStatistics | None
    normalised: Normalised | None
    outcomes: tuple[Outcome, ...]
    between: Between
    twice: tuple[str, ...] = ()
    per_call: tuple[Repeated, SampleStatistics] | None = None


def pair(base: Sequence[Trace], other: Sequence[Trace], options: CompareOptions) -> Pair:
    """Compare two runs. Each run has one capture or more. Raises UsageError for options that do not apply to the runs,
    and ValueError for a side without captures."""
    base, other = on_one_clock((base, other))
    return pair_on_clock(base, other, options)


def pair_on_clock(base: Sequence[Trace], other: Sequence[Trace], options: CompareOptions) -> Pair:
    """Return the :func:`pair` of two runs of those that are already on one clock."""
    traces = pooled(base), pooled(other)
    captures = tuple(map(samples_of, base)), tuple(map(samples_of, other))
    between = between_runs(traces) if options.noise is None else Between(options.noise, GIVEN)
    samples = [[recording.step_ns for recording in side] for side in captures]
    steps = of_steps(samples[0], samples[1], between.ratio)
    by_work = _by_work(traces, captures, options, between.ratio)
    limited = steps if by_work is None or options.per is None else by_work.statistics
    of_device = ON_DEVICE if options.noise is None else options.noise
    # Copies of a recording have different paths, so the events are compared.
    same = [(first, second) for first in base for second in other if len(first) and first.events.equals(second.events)]
    twice = tuple(dict.fromkeys(trace.meta.source for both in same for trace in both))
    gate = outcomes(options.conditions, (base, other), limited, between.ratio, of_device)
    per_call, unit = None, repeated(*traces)
    windows = compared_windows(*traces, unit)
    if steps is not None:
        windows = replace(windows[0], typical_ns=steps.base), replace(windows[1], typical_ns=steps.other)
    if unit is not None:
        calls = [[np.concatenate(side)] for side in unit.samples]
        per_call = unit, step_statistics(calls[0], calls[1], np.mean, math.hypot(between.ratio, unit.uneven))
    return Pair((tuple(base), tuple(other)), traces, windows, captures, steps, by_work, gate, between, twice, per_call)


def _by_work(
    traces: tuple[Trace, Trace], captures: Sequence[Sequence[StepSamples]], options: CompareOptions, between: float
) -> Normalised | None:
    stepped = all(any(len(recording.step) for recording in side) for side in captures)
    if options.per is None:
        return _different_work(traces, captures, options, between) if stepped else None
    unit, amounts = options.per, options.amounts or (None, None)
    base, other = (work(trace, unit, amount) for trace, amount in zip(traces, amounts[:2], strict=True))
    if base is None or other is None:
        unknown = traces[0] if base is None else traces[1]
        instead = get_plugins().instead(unknown.meta.framework, "flops") if unit == FLOP else None
        hint = _HINTS[unit] if instead is None else render(instead)
        raise UsageError(f"{unknown.meta.source}: the number of {unit}s per step is unknown", hint)
    if not stepped:
        hint = "give the profiler a schedule, and call its step() after each iteration"
        raise UsageError(f"the time per {unit} is unknown, because no steps were recorded", hint)
    return normalised(unit, base, other, captures, between)


def _different_work(
    traces: tuple[Trace, Trace], captures: Sequence[Sequence[StepSamples]], options: CompareOptions, between: float
) -> Normalised | None:
    """Return the times for equal work by the first unit in which the work of the steps differs, None if none does."""
    of_one = traces[0].meta.framework == traces[1].meta.framework  # the frameworks' operators have other FLOPs
    for unit in (SAMPLE, TOKEN, FLOP) if of_one else (SAMPLE, TOKEN):
        amounts = options.amounts[:2] if unit == SAMPLE and options.amounts else (None, None)
        base, other = (work(trace, unit, amount) for trace, amount in zip(traces, amounts, strict=True))
        if base is not None and other is not None and abs(other.amount - base.amount) > _SAME_WORK * base.amount:
            return normalised(unit, base, other, captures, between)
    return None


def normalised(
    unit: str, base: Work, other: Work, sides: Sequence[Sequence[StepSamples]], between: float = ON_HOST
) -> Normalised:
    """Compare step times per unit of work. ``between`` is the assumed relative standard deviation between equal runs.
    Raises ValueError if a side has no steps."""
    scaled: list[list[arrays.IntArray]] = []
    rates = []
    for done, side in zip((base, other), sides, strict=True):
        scale = QUANTITY[unit] / done.amount  # This is a Fraction, so only the result is rounded.
        scaled.append([])
        for samples in side:
            ns = [round(ns * scale) for ns in samples.step_ns.ravel().tolist()]
            scaled[-1].append(np.array(ns, np.int64).reshape(samples.step_ns.shape))
        median = float(np.median(np.concatenate([samples.step_ns.ravel() for samples in side])))
        rates.append(float(done.amount) * 1e9 / median if median else 0.0)
    return Normalised(unit, base, other, step_statistics(scaled[0], scaled[1], between=between), (rates[0], rates[1]))


def work_table(result: Normalised) -> pd.DataFrame:
    """Return a table of one row. For each run, it holds the work of a step, the median step time per unit of work, and
    the units of work per second. It also holds the difference between the step times with its interval."""
    steps = result.statistics
    row = {
        "per": result.name, "base_amount": float(result.base.amount), "other_amount": float(result.other.amount),
        "base_ns": steps.base, "other_ns": steps.other, "difference_ns": steps.difference,
        "low_ns": steps.low, "high_ns": steps.high, "change_ratio": steps.change_ratio,
        "base_units_per_s": result.per_s[0], "other_units_per_s": result.per_s[1], "verdict": steps.verdict,
    }  # fmt: skip
    return pd.DataFrame([row]).astype({"low_ns": "Int64", "high_ns": "Int64"})


def work(trace: Trace, unit: str, user_amount: int | None = None) -> Work | None:
    if user_amount is not None:
        return Work(unit, Fraction(user_amount), "given")
    if unit == FLOP:
        if any(finding.code == OPERATORS_LEFT_OUT for finding in trace.quality):
            return None
        steps = len(np.unique(trace.ints("step")[step_rows(trace)]))
        flops = flops_in_steps(trace)
        return Work(FLOP, Fraction(flops, steps), "recorded") if steps and flops else None
    for key in WORK_KEYS[unit]:
        try:
            amount = Fraction(str(trace.meta.extra.get(key)).strip().strip('"'))
        except ValueError:
            continue
        if amount > 0:
            return Work(unit, amount, "recorded")
    batch = batch_of_shapes(trace) if unit == SAMPLE else None
    return None if batch is None else Work(unit, Fraction(batch), "shapes")


def flops_in_steps(trace: Trace) -> int:
    """Return the FLOPs of all operators in the steps, else those of the layers of annotated models. If operators with
    recorded FLOPs are nested, the outermost counts."""
    flops = operator_flops(trace)
    if not (flops > 0).any():
        return int(layer_flops(trace)[trace.ints("step") >= 0].sum())
    counted = trace.host & (flops > 0) & (trace.ints("step") >= 0)
    above = nesting.nearest_above(trace.ints("parent"), counted)
    return int(flops[counted & (above == arrays.NO_ROW)].sum())


def batch_of_shapes(trace: Trace) -> int | None:
    """Return the number of samples that a rank processes in one step: the first dimension of the input of forward
    operators such as conv. Return None unless more than half of their calls have the same first dimension."""
    rows = trace.operators & trace.rows("op_name", *_BATCH_FIRST)
    rows &= ~trace.rows("phase", BACKWARD, OPTIMIZER, DATALOADER) & (trace.ints("step") >= 0)
    shapes = trace.codes("shapes")
    codes, calls = np.unique(shapes.codes[rows], return_counts=True)
    sizes: Counter[int] = Counter()
    for code, count in zip(codes.tolist(), calls.tolist(), strict=True):
        try:
            tensors = _tensors(json.loads(shapes.values[code])) if code >= 0 else ()
        except ValueError:
            continue
        batch = next((axes[0] for axes in tensors if len(axes) > 1), 0)  # the first tensor with several axes
        if batch:
            sizes[batch] += count
    ((batch, count),) = sizes.most_common(1) or [(0, 0)]
    return batch if count > sum(sizes.values()) / 2 else None


def _tensors(listed: Any) -> Sequence[Sequence[int]]:
    """Return the shapes of all arguments in order. ``listed`` is a list, nested lists, or a dict by argument name."""
    if isinstance(listed, dict):
        return [shape for value in listed.values() for shape in _tensors(value)]
    if not isinstance(listed, list) or not listed:
        return []
    if all(isinstance(item, int) for item in listed):
        return [listed]
    return [shape for item in listed for shape in _tensors(item)]


def distinguishing(paths: Sequence[PurePath]) -> list[str]:
    """Return a distinct label for each path: ``runs/a/trace.json`` and ``runs/b/trace.json`` become ``a`` and ``b``.

    Names of folders and files that all paths share at the start or at the end are removed. The label of a path is then
    its last remaining name. If two labels are equal, the first remaining names are tried, then the last two, the first
    two, and so on. If equal labels remain, the last names of the full paths are numbered: ``trace (1)``.
    """
    parts = _differing([list(path.parts) or [str(path)] for path in paths])  # Path(".") has no parts.
    for length in range(1, max(map(len, parts), default=0) + 1):
        for chosen in ([names[-length:] for names in parts], [names[:length] for names in parts]):
            bare = [[*names[:-1], _bare(names[-1])] for names in chosen]
            # File name suffixes are kept only if they distinguish the runs.
            same = len(set(map(tuple, bare))) == len(set(map(tuple, chosen)))
            joined = ["/".join(names) for names in (bare if same else chosen)]
            words = _differing([label.split("-") for label in joined], (-1,))
            for labels in (joined, ["-".join(label) for label in words]):
                short = [_short(label) for label in labels]
                if len(set(short)) == len(short):
                    return short
    return [f"{_short(_bare(path.name) or str(path))} ({at})" for at, path in enumerate(paths, 1)]


def _differing(parts: list[list[str]], ends: tuple[int, ...] = (0, -1)) -> list[list[str]]:
    """Remove the parts that all paths share at the start (0 in ``ends``) and at the end (-1 in ``ends``). Parts are
    folders, file names or words. Each path keeps at least one part."""
    for end in ends:
        while len({names[end] for names in parts}) == 1 and all(len(names) > 1 for names in parts):
            for names in parts:
                del names[end]
    return parts


def _bare(name: str) -> str:
    for suffix in _SUFFIXES:
        if Path(name).suffix == suffix:
            name = name.removesuffix(suffix)
    return name


def _short(label: str) -> str:
    """Replace the middle of a long label by an ellipsis, and keep more of its end, where file names usually differ."""
    if len(label) <= LONGEST:
        return label
    tail = LONGEST * 2 // 3
    return f"{label[: LONGEST - tail - 1]}…{label[-tail:]}"
