"""Which causes of a difference are new, and which were there before?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from perfkit_core.comparison.against.change import Change
from perfkit_core.comparison.attribution.causes import causes, explained, largest_first
from perfkit_core.comparison.attribution.groupings import by_layer

CAUSE = ("operator", "category", "place", "phase", "family")


def new_causes(before: pd.DataFrame, now: pd.DataFrame) -> pd.DataFrame:
    """Of two trees of :func:`~perfkit_core.comparison.attribution.attribute`: operator, category, place, phase, family,
    before_difference_ns, now_difference_ns (other less base, of the earlier pair and of this one), difference_ns (now
    less before), explained_ratio (of the whole change, by this row and those before it). Largest changes first; they
    sum to the change of the difference of the medians."""
    return _changed(causes(before), causes(now), CAUSE)


def new_layers(before: pd.DataFrame, now: pd.DataFrame) -> pd.DataFrame:
    """The same by layer, with the column layer in front. No rows where not all runs have layers."""
    first, last = by_layer(before), by_layer(now)
    if first.empty or last.empty:
        first, last = first.head(0), last.head(0)
    return _changed(first, last, ("layer",))


def changes(found: Change) -> pd.DataFrame:
    """One row: verdict, before_difference_ns, now_difference_ns, difference_ns (the change), low_ns, high_ns (its 95 %
    interval), noise_ns."""
    row = {
        "verdict": found.verdict, "before_difference_ns": found.before, "now_difference_ns": found.now,
        "difference_ns": found.change, "low_ns": found.low, "high_ns": found.high, "noise_ns": found.noise,
    }  # fmt: skip
    return pd.DataFrame([row]).astype(dict.fromkeys(("low_ns", "high_ns", "noise_ns"), "Int64"))


def _changed(before: pd.DataFrame, now: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    names = list(keys)
    sides = zip(("before", "now"), (before, now), strict=True)
    parts = [table.set_index(names)["difference_ns"].rename(f"{side}_difference_ns") for side, table in sides]
    joined = pd.concat(parts, axis=1).fillna(0).astype(np.int64).reset_index()
    joined["difference_ns"] = joined["now_difference_ns"] - joined["before_difference_ns"]
    return explained(largest_first(joined, names))
