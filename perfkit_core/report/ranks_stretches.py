"""Many ranks and steps in a table that a page can hold: one row for a stretch of steps of a rank."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.analyses.tables import rounded_division
from perfkit_core.language import say

MOST: Final = 5000
"""Rows."""


def fitting(table: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The table of the view ranks, and "" ; or with ``step`` a stretch (``8–15``), all times the average of its steps
    (to the nearest ns, of those that are known), and a sentence on that."""
    if len(table) <= MOST:
        return table, ""
    steps = np.unique(table["step"].to_numpy(np.int64))
    stretches = max(MOST // table["rank"].nunique(), 1)
    long = -(-len(steps) // stretches)
    labels = _labels(steps, long)
    at = np.searchsorted(steps, table["step"].to_numpy(np.int64)) // long
    found = _averaged(table, at)
    found.insert(1, "step", [labels[stretch] for stretch in found.pop("stretch")])
    note = say("Each row is the average of up to {count} steps; single ones: perfkit summary --view ranks.", count=long)
    return found, note


def _labels(steps: np.ndarray, long: int) -> list[str]:
    parts = [steps[begin : begin + long] for begin in range(0, len(steps), long)]
    return [str(part[0]) if len(part) == 1 else f"{part[0]}–{part[-1]}" for part in parts]


def _averaged(table: pd.DataFrame, stretch: np.ndarray) -> pd.DataFrame:
    times = [str(name) for name in table.columns if str(name).endswith("_ns")]
    grouped = table[["rank", *times]].assign(stretch=stretch).groupby(["rank", "stretch"], sort=True)
    total, known = grouped.sum(min_count=1), grouped.count()
    columns = {name: _average(total[name], known[name]) for name in times}
    return pd.DataFrame(columns, index=total.index).reset_index()


def _average(total: pd.Series[int], known: pd.Series[int]) -> pd.Series[int]:
    whole = rounded_division(total.fillna(0).to_numpy(np.int64), known.to_numpy(np.int64))
    return pd.Series(whole, index=total.index).astype("Int64").where(known > 0)
