"""A difference by layer, by family and by kernel: each sums the attribution in another way."""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core.comparison.attribution.causes import SUMMED, causes, explained, largest_first, with_path
from perfkit_core.comparison.attribution.keys import NO_LAYER

KERNEL = "kernel"


def by_layer(attribution: pd.DataFrame) -> pd.DataFrame:
    """The sums of each layer: layer, then times, effects and explained_ratio as of
    :func:`~perfkit_core.comparison.attribution.causes.causes`. No rows where not both runs have layers."""
    rows = with_path(attribution)
    if "layer" not in rows or rows["layer"].isin([NO_LAYER, ""]).all():
        return pd.DataFrame(columns=["layer", *SUMMED, "explained_ratio"])
    rows["layer"] = rows["layer"].replace("", NO_LAYER)
    return _sums(rows, ["layer"])


def by_family(attribution: pd.DataFrame) -> pd.DataFrame:
    """The sums of the causes of each family and place, as of
    :func:`~perfkit_core.comparison.attribution.causes.causes`; what has no family is called by its category."""
    if attribution.empty:
        return pd.DataFrame(columns=["family", "place", *SUMMED, "explained_ratio"])
    rows = causes(attribution)
    rows["family"] = rows["family"].where(rows["family"] != "", rows["category"])
    return _sums(rows, ["family", "place"])


def by_kernel(attribution: pd.DataFrame) -> pd.DataFrame:
    """Kernels and copies over all phases, layers and operators: kernel, family, base_calls, other_calls (a step),
    base_ns, other_ns (that nothing before them hides), difference_ns. No rows where no device work was recorded."""
    columns = ["kernel", "family", "base_calls", "other_calls", "base_ns", "other_ns", "difference_ns"]
    if attribution.empty or not (attribution["level"] == KERNEL).any():
        return pd.DataFrame(columns=columns)
    rows = with_path(attribution, KERNEL)
    table = rows.groupby(["name", "family"], sort=False)[columns[2:]].sum().reset_index()
    return largest_first(table.rename(columns={"name": "kernel"}), ["kernel", "family"])


def _sums(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    table = rows.groupby(keys, sort=False, dropna=False)[list(SUMMED)].sum().reset_index()
    return explained(largest_first(table.astype(dict.fromkeys(SUMMED, np.int64)), keys))
