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
from perfkit_core.compare.attribute.attribute import BESIDE_MEDIAN
from perfkit_core.compare.attribute.causes import by_layer, causes, grouped, with_path
from perfkit_core.compare.attribute.leaves import CATEGORY, NO_LAYER
from perfkit_core.compare.noise import ASSUMED, ON_DEVICE, ON_HOST, band_of_equal_runs
from perfkit_core.compare.pair import Pair
from perfkit_core.compare.slices import EXCLUSIVE
from perfkit_core.compare.statistics import NO_DIFFERENCE

_NOTABLE: Final = 0.02
"""Smaller differences, as a share of the step, are named only if they exceed the noise, and the step differs."""
_SMALLEST, _SMALLEST_ON_HOST = 0.002, 0.01
"""Smaller differences, as a share of the step, are never named: of kernels, and of all else."""
_NAMED: Final = 2
"""Number of layers, in each direction, and of operators with other calls that a sentence names."""
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
    if result.between.origin == ASSUMED and max(map(len, result.captures)) < 2:
        return {"host": max(host, band_of_equal_runs(ON_HOST)), "device": min(host, band_of_equal_runs(ON_DEVICE))}
    return {"host": host, "device": host}


def changes(result: Pair, tree: pd.DataFrame, operators: pd.DataFrame) -> pd.DataFrame:
    """Return the causes to name, the largest first, with the columns of
    :func:`~perfkit_core.compare.attribute.causes.grouped`. A cause is left out if ``operators``, the table beside it,
    has its operator with a difference in the other direction."""
    rows = grouped(causes(tree), [tree])
    if rows.empty:
        return rows
    computing = rows["category"] == EXCLUSIVE[0]  # copies and communication wait for others, as the host does
    by_place = relative_noise(result)
    noise, size = computing.map({True: by_place["device"], False: by_place["host"]}), rows["difference_ns"].abs()
    step = max(tree[["base_ns", "other_ns"]].iloc[0].tolist())
    level = rows[["base_ns", "other_ns"]].max(axis=1)
    statistics = result.steps or (result.per_call and result.per_call[1])
    differs = statistics is None or statistics.verdict != NO_DIFFERENCE
    # Equal runs differ by a factor. On the host, a short part varies more than the step, which matters in equal runs.
    factor = np.abs(np.log(rows["other_ns"].clip(lower=1) / rows["base_ns"].clip(lower=1)))
    shorter = 1.0 if differs else (step / level.clip(lower=1)).where(~computing, 1.0) ** 0.5
    beyond = factor > 2 * np.arcsinh(noise / 2) * shorter
    of_one = len({trace.meta.framework for trace in result.traces}) == 1
    if result.steps is not None and of_one:  # numbers of calls per step are exact
        counted = ~rows["category"].isin(["input_wait", "idle"])
        beyond |= counted & ~np.isclose(rows["base_calls"], rows["other_calls"])
    least = np.where(computing, _SMALLEST, _SMALLEST_ON_HOST) if differs else _NOTABLE
    named = (size > least * step) & (beyond | (differs & (size > _NOTABLE * step)))
    at = zip(rows["operator"], rows["place"], rows["difference_ns"], strict=True)
    named &= np.array([not _contradicted(*cause, operators) for cause in at], np.bool_)
    labelled = [
        name if certain else say("{name}, within noise", name=name)
        for name, certain in zip(rows["name"], beyond, strict=True)
    ]
    named_rows: pd.DataFrame = rows.assign(name=labelled)[named].reset_index(drop=True)
    return named_rows


def _contradicted(operator: str, place: str, difference_ns: int, operators: pd.DataFrame) -> bool:
    measure = "difference_device_ns" if place == "device" else "difference_cpu_ns"
    return int(operators.loc[operators["name"] == operator, measure].sum()) * difference_ns < 0


def sentences(result: Pair, tree: pd.DataFrame) -> Iterator[Message]:
    """Yield what changed: the time by category, the layers with the largest changes in both directions, and exact
    changes of the numbers of calls."""
    statistics = result.steps or (result.per_call and result.per_call[1])
    if tree.empty or statistics is None:
        return
    parts = tree[tree["level"] == CATEGORY]
    parts = parts[parts["difference_ns"].abs() > _SMALLEST * tree["base_ns"].iloc[0]]
    differing = [
        message(
            "{name} {difference:+ns}",
            name=say(_REST if name == BESIDE_MEDIAN else name).replace("_", " "),
            difference=difference,
        )
        for name, difference in zip(parts["name"], parts["difference_ns"].tolist(), strict=True)
    ]
    if differing and statistics.verdict != NO_DIFFERENCE:
        yield message("By category: {parts:parts}.", parts=differing)
    layers = _layers(tree, max(relative_noise(result).values()))
    if layers:
        yield message("Layers that changed most: {layers:parts}.", layers=layers)
    frameworks = {trace.meta.framework for trace in result.traces}
    calls = _calls(tree) if len(frameworks) == 1 else []
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


def _calls(tree: pd.DataFrame) -> list[Message]:
    """Return the operators whose numbers of calls per step differ, if they are whole numbers."""
    rows = with_path(tree)
    rows = rows[rows["category"] != "input_wait"]
    numbers = {"base_calls": "max", "other_calls": "max", "count_effect_ns": "sum"}  # each category has all calls
    by_place = rows.groupby(["operator", "phase", "layer"], sort=False).agg(numbers)
    sums = by_place.groupby("operator", sort=False).sum().reset_index()
    whole = (sums["base_calls"] % 1 == 0) & (sums["other_calls"] % 1 == 0)
    sums = sums[whole & (sums["base_calls"] != sums["other_calls"])]
    order = sums["count_effect_ns"].abs().sort_values(ascending=False, kind="stable").index[: 2 * _NAMED]
    text = mark("{operator} {base} → {other}")
    return [
        message(text, operator=operator, base=format_count(base), other=format_count(other))
        for operator, base, other in sums.loc[order, ["operator", "base_calls", "other_calls"]].values.tolist()
    ]
