"""What changed between two runs: the sentences and the waterfall of the first screen.

Each cause has its own certainty. Numbers of calls are exact. The time of a cause may differ between equal runs by a
share of it: by the same share as the step, or less on a device. What lies inside is left out if the steps do not differ
beyond noise either, and is labelled otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.language.messages import Message, mark, message, say
from perfkit_core.base.language.units import format_count
from perfkit_core.causes.segments import COMPUTE
from perfkit_core.compare.attribute.attribute import BESIDE_MEDIAN
from perfkit_core.compare.attribute.causes import KERNEL, by_layer, grouped, of_operators, unlike, with_path
from perfkit_core.compare.attribute.leaves import CATEGORY, NO_LAYER, OUTSIDE, UNLAUNCHED
from perfkit_core.compare.comparison import Comparison, different_devices
from perfkit_core.compare.headline import bare_kernel
from perfkit_core.compare.noise import ASSUMED, ON_DEVICE, ON_HOST, band_of_equal_runs
from perfkit_core.compare.pair import Pair
from perfkit_core.compare.pieces import BUSY, INPUT, PHRASES
from perfkit_core.compare.statistics import NO_DIFFERENCE, TOO_FEW, SampleStatistics

_NOTABLE: Final = 0.02
"""Smaller differences, as a share of the step, are named only if they exceed the noise, and the step differs."""
_SMALLEST, _SMALLEST_ON_HOST = 0.002, 0.01
"""Smaller differences, as a share of the step, are never named: of kernels, and of all else."""
_NAMED: Final = 2
"""Number of layers, in each direction, and of operators with other calls that a sentence names."""
_CATEGORIES: Final = 3
"""Maximum number of categories that a sentence names; the waterfall has all."""
_REST: Final = mark("rest")
_USUAL: Final = 4
"""A layer changes more than others if its relative change exceeds the median over the layers by this factor."""


def relative_noise(result: Pair) -> dict[str, float]:
    """Return by which share of its time a cause may differ between equal runs, for each place (device or host)."""
    steps = result.steps or (result.per_call[1] if result.per_call else None)
    if steps is not None and steps.noise is not None and steps.base and steps.other:
        host = steps.noise / sqrt(steps.base * steps.other)
    else:
        host = band_of_equal_runs(result.between.ratio)
    if result.per_call is not None:  # Calls at the ends of the recordings may belong to one more unit of work.
        host = max(host, 1 / min(result.per_call[1].steps))
        return {"host": host, "device": host}
    if result.between.origin == ASSUMED and max(map(len, result.captures)) < 2:
        return {"host": max(host, band_of_equal_runs(ON_HOST)), "device": min(host, band_of_equal_runs(ON_DEVICE))}
    return {"host": host, "device": host}


def changes(result: Pair, tables: Comparison) -> pd.DataFrame:
    """Return the causes to name, the largest first, with the columns of
    :func:`~perfkit_core.compare.attribute.causes.grouped`. A cause is left out if the table of operators beside it has
    its operator with a difference in the other direction. Nothing is named if the runs have no work in common."""
    tree = tables.attribution
    rows = grouped(tables.causes, [tree])
    statistics = result.steps or (result.per_call and result.per_call[1])
    if rows.empty or statistics is None or (result.steps is None and unlike(of_operators(tables.causes))):
        return rows[:0]
    # Copies and communication wait for others, as the host does.
    computing = (rows["category"] == COMPUTE) & (rows["place"] == "device")
    by_place = relative_noise(result)
    noise, size = computing.map({True: by_place["device"], False: by_place["host"]}), rows["difference_ns"].abs()
    step = max(tree[["base_ns", "other_ns"]].iloc[0].tolist())
    level = rows[["base_ns", "other_ns"]].max(axis=1)
    differs = _may_differ(statistics, result)
    # Equal runs differ by a factor. On the host, a short part varies more than the step, which matters in equal runs.
    factor = np.abs(np.log(rows["other_ns"].clip(lower=1) / rows["base_ns"].clip(lower=1)))
    shorter = 1.0 if differs else (step / level.clip(lower=1)).where(~computing, 1.0) ** 0.5
    beyond = factor > 2 * np.arcsinh(noise / 2) * shorter
    # The host varies most between kernels: a change that the step does not show may be chance. So may one of kernels
    # in fixed windows, which hold different parts of the work.
    if not differs:
        certain = rows["category"].isin(BUSY) & (result.steps is not None)
        beyond &= certain | (size > (statistics.noise or 0))
    of_one = len({trace.meta.framework for trace in result.traces}) == 1
    if result.steps is not None and of_one:  # numbers of calls per step are exact
        beyond |= rows["category"].isin(BUSY) & ~np.isclose(rows["base_calls"], rows["other_calls"])
    least = np.where(computing, _SMALLEST, _SMALLEST_ON_HOST) if differs else _NOTABLE
    named = (size > least * step) & (beyond | (differs & (size > _NOTABLE * step)))
    at = zip(rows["operator"].where(rows["category"].isin(BUSY)), rows["place"], rows["difference_ns"], strict=True)
    agrees = np.array([not _contradicted(*cause, tables.operators) for cause in at], np.bool_)
    named &= agrees
    # Without a larger cause, most of the difference would be in the row of everything else.
    named |= agrees & (size > size[named].max())
    known = statistics.noise is not None  # the headline says so if it is not
    labelled = [
        name if certain or not known else say("{name}, within noise", name=name)
        for name, certain in zip(rows["name"], beyond, strict=True)
    ]
    named_rows: pd.DataFrame = rows.assign(name=labelled)[named].reset_index(drop=True)
    return named_rows


def _may_differ(statistics: SampleStatistics, result: Pair) -> bool:
    """Return whether the times differ. Single steps do if their difference exceeds that of equal runs, or if the runs
    cannot be equal."""
    if statistics.verdict != TOO_FEW:
        return statistics.verdict != NO_DIFFERENCE
    if different_devices(result.traces) or len({trace.meta.framework for trace in result.traces}) > 1:
        return True
    return abs(statistics.difference) > band_of_equal_runs(result.between.ratio) * statistics.base


def _contradicted(operator: str, place: str, difference_ns: int, operators: pd.DataFrame) -> bool:
    measure = "difference_device_ns" if place == "device" else "difference_cpu_ns"
    return int(operators.loc[operators["name"] == operator, measure].sum()) * difference_ns < 0


def sentences(result: Pair, tables: Comparison) -> Iterator[Message]:
    """Yield what changed: the time by category, the layers with the largest changes in both directions, and exact
    changes of the numbers of calls."""
    statistics, tree = result.steps or (result.per_call and result.per_call[1]), tables.attribution
    if tree.empty or statistics is None:
        return
    parts = tree[tree["level"] == CATEGORY]
    parts = parts[parts["difference_ns"].abs() > _SMALLEST * tree["base_ns"].iloc[0]]
    beside = parts["name"] == BESIDE_MEDIAN
    parts = parts[beside | parts.index.isin(parts["difference_ns"].abs()[~beside].nlargest(_CATEGORIES).index)]
    differing = [
        message(
            "{name} {difference:+ns}",
            name=say(_REST if name == BESIDE_MEDIAN else PHRASES[name]),
            difference=difference,
        )
        for name, difference in zip(parts["name"], parts["difference_ns"].tolist(), strict=True)
    ]
    if differing and _may_differ(statistics, result):
        yield message("By category: {parts:parts}.", parts=differing)
    shares = of_operators(tables.causes)
    if shares is not None and unlike(shares):
        text = mark("Operators launched {base:ratio} of the device time in base, and {other:ratio} in other, as far as "
                    "recorded, so kernels are compared instead of operators.")  # fmt: skip
        yield message(text, base=shares[0], other=shares[1])
    if result.steps is None:  # The windows hold different parts of the layers.
        return
    layers = _layers(tree, max(relative_noise(result).values()))
    if layers:
        yield message("Layers that changed most: {layers:parts}.", layers=layers)
    # Other frameworks and devices always have some other calls.
    equal = len({trace.meta.framework for trace in result.traces}) == 1 and not different_devices(result.traces)
    calls = _calls(tree, 0.0 if equal else _SMALLEST * tree["base_ns"].iloc[0], equal)
    if calls:
        yield message("Calls per step: {calls:parts}.", calls=calls)


def _layers(tree: pd.DataFrame, noise: float) -> list[Message]:
    rows = by_layer(tree)
    rows = rows[rows["layer"] != NO_LAYER]
    level = rows[["base_ns", "other_ns"]].max(axis=1)
    relative = rows["difference_ns"].abs() / level.where(level > 0, 1)
    limit = max(_USUAL * relative.median(), noise / 2) if len(rows) > _USUAL else noise
    rows = rows[(relative > limit) & (rows["difference_ns"].abs() > _NOTABLE * tree["base_ns"].iloc[0])]
    both = [rows[rows["difference_ns"] > 0].head(_NAMED), rows[rows["difference_ns"] < 0].head(_NAMED)]
    return [
        message("{name} {difference:+ns}", name=layer, difference=difference)
        for part in both for layer, difference in zip(part["layer"], part["difference_ns"].tolist(), strict=True)
    ]  # fmt: skip


def _calls(tree: pd.DataFrame, least_ns: float, in_operators: bool) -> list[Message]:
    """Return the operators and the kernels whose numbers of calls per step differ, unless the effect is less than
    ``least_ns``. Kernels are those that both runs have outside operators and, with ``in_operators``, in operators that
    run as often. If an operator has more calls of one kernel and fewer of another, the library chose other kernels."""
    rows, kernels = with_path(tree), with_path(tree, KERNEL)
    rows = rows[(rows["category"] != INPUT) & ~rows["operator"].isin([OUTSIDE, UNLAUNCHED])]
    operators = _differing_calls(rows.assign(name=rows["operator"]), least_ns)
    more = (kernels["other_calls"] - kernels["base_calls"]).groupby(kernels["operator"])
    inside = (more.transform("min") >= 0) | (more.transform("max") <= 0)
    inside &= ~kernels["operator"].isin([UNLAUNCHED, *operators["name"]])
    chosen = (kernels["operator"] == OUTSIDE) | (in_operators & inside)
    both = (kernels["base_calls"] > 0) & (kernels["other_calls"] > 0)
    kernels = _differing_calls(kernels[chosen & both], least_ns)
    calls = pd.concat([operators, kernels.assign(name=kernels["name"].map(bare_kernel))], ignore_index=True)
    order = calls["count_effect_ns"].abs().sort_values(ascending=False, kind="stable").index[: 2 * _NAMED]
    text = mark("{operator} {base} → {other}")
    return [
        message(text, operator=name, base=format_count(base), other=format_count(other))
        for name, base, other in calls.loc[order, ["name", "base_calls", "other_calls"]].values.tolist()
    ]


def _differing_calls(rows: pd.DataFrame, least_ns: float) -> pd.DataFrame:
    """Return the calls by name where they differ. The number of a run is a whole one if each of its steps has as many
    calls. If it is not in one of the runs, something may run in some steps only, so the numbers must be near."""
    numbers = {"base_calls": "max", "other_calls": "max", "count_effect_ns": "sum"}  # each category has all calls
    by_place = rows.groupby(["operator", "name", "phase", "layer"], sort=False).agg(numbers)
    sums = by_place.groupby("name", sort=False).sum().reset_index()
    base, other = sums["base_calls"], sums["other_calls"]
    whole = [calls % 1 == 0 for calls in (base, other)]
    difference = (base - other).abs()
    near = (whole[0] | whole[1]) & (difference >= 1) & (2 * difference <= np.maximum(base, other))
    differ = (difference > 0) & ((whole[0] & whole[1]) | near)
    return sums[differ & (sums["count_effect_ns"].abs() >= least_ns)]
