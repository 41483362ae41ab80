"""A comparison as plain data, for programs: the keys that ``--format json`` adds to the tables."""

from __future__ import annotations

from typing import Any

import pandas as pd

from perfkit_core.comparison.attribution.causes import causes
from perfkit_core.comparison.gate import table as gate_table
from perfkit_core.comparison.normalise import Normalised
from perfkit_core.comparison.pair import Pair
from perfkit_core.comparison.samples.statistics import SampleStatistics


def data(found: Pair, attribution: pd.DataFrame, operators: pd.DataFrame, matched_share: Any) -> dict[str, Any]:
    """``step_time`` (None without steps), ``matched_share`` (side → level → place → share), ``attribution`` (rows
    that sum to the difference), ``attribution_tree`` (rows without children sum to it), ``operators`` (rows of an
    :class:`~perfkit_core.comparison.alignment.Alignment`); ``normalised`` and ``gate`` where asked."""
    more: dict[str, Any] = {}
    if found.normalised is not None:
        more["normalised"] = _normalised(found.normalised)
    if found.outcomes:
        more["gate"] = gate_table.data(found.outcomes)
    return {
        "step_time": None if found.steps is None else statistics(found.steps),
        "matched_share": matched_share,
        "attribution": rows(causes(attribution)),
        "attribution_tree": rows(attribution),
        "operators": rows(operators),
        **more,
    }


def statistics(found: SampleStatistics) -> dict[str, Any]:
    """Median step in ns, other less base, its 95 % interval (None: too few steps), and what that rests on."""
    return {
        "unit": "ns", "base": found.base, "other": found.other, "difference": found.difference,
        "interval": None if found.low is None else [found.low, found.high], "verdict": found.verdict,
        "change_ratio": found.change_ratio, "noise": found.noise, "probability_slower": found.probability_slower,
        "cliffs_delta": found.cliffs_delta, "quickest": found.quickest,
        "steps": list(found.steps), "captures": list(found.captures),
    }  # fmt: skip


def table(found: SampleStatistics) -> pd.DataFrame:
    """One row: verdict, difference_ns, low_ns, high_ns, noise_ns, probability_slower, cliffs_delta, and for base and
    other the number of steps and captures."""
    row = {
        "verdict": found.verdict, "difference_ns": found.difference, "low_ns": found.low, "high_ns": found.high,
        "noise_ns": found.noise, "probability_slower": found.probability_slower, "cliffs_delta": found.cliffs_delta,
        "base_steps": found.steps[0], "other_steps": found.steps[1],
        "base_captures": found.captures[0], "other_captures": found.captures[1],
    }  # fmt: skip
    return pd.DataFrame([row]).astype(dict.fromkeys(("low_ns", "high_ns", "noise_ns"), "Int64"))


def rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """A mapping a row; unknown is None."""
    return [
        {str(name): None if pd.api.types.is_scalar(value) and pd.isna(value) else value for name, value in row.items()}
        for row in table.to_dict("records")
    ]


def _normalised(one: Normalised) -> dict[str, Any]:
    works = (one.base, one.other)
    return {
        "per": one.name, "amounts": [float(work.amount) for work in works], "origins": [work.origin for work in works],
        "per_s": list(one.per_s), **statistics(one.statistics),
    }  # fmt: skip
