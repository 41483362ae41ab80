"""Tables of two runs as one: all rows of both, and what differs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

MATCHED, BASE_ONLY, OTHER_ONLY, UNNAMED = "both", "base only", "other only", "no canonical name"


def joined_tables(base: pd.DataFrame, other: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """All rows of both, those of base first. A side that lacks a row has 0 calls and 0 ns there."""
    every = pd.concat([base[keys], other[keys]]).drop_duplicates()
    joined = every.merge(base, on=keys, how="left").merge(other, on=keys, how="left")
    numbers = {name: kind for side in (base, other) for name, kind in side.dtypes.items() if name not in keys}
    return joined.fillna(dict.fromkeys(numbers, 0)).astype(numbers)


def found_in(joined: pd.DataFrame) -> np.ndarray:
    """In which of the runs each name is, shape (rows,)."""
    in_base, in_other = joined["base_calls"].to_numpy() > 0, joined["other_calls"].to_numpy() > 0
    where = np.where(in_base & in_other, MATCHED, np.where(in_base, BASE_ONLY, OTHER_ONLY))
    return np.where(joined["named"].to_numpy(bool) | (in_base & in_other), where, UNNAMED)


def with_difference(table: pd.DataFrame) -> pd.DataFrame:
    """With difference_ns (other less base) and change_ratio (by the base; missing where that is 0)."""
    difference = table["other_ns"] - table["base_ns"]
    base = table["base_ns"].to_numpy(np.float64)
    change = difference.to_numpy(np.float64) / np.where(base > 0, base, 1)
    ratio = pd.Series(pd.arrays.FloatingArray(change, base <= 0), index=table.index)
    return table.assign(difference_ns=difference, change_ratio=ratio)


def known_device_times(table: pd.DataFrame, on_device: Mapping[str, bool]) -> pd.DataFrame:
    """Where a side has no device work its times there are not 0 but missing, and so is the difference."""
    missing = [side for side, known in on_device.items() if not known]
    gone = [f"{side}_device_ns" for side in (*missing, *(["difference"] if missing else []))]
    absent = {name: pd.array([pd.NA] * len(table), "Int64") for name in gone if name in table.columns}
    return table.assign(**absent)
