"""The average step of a table: what is a sum over the steps, divided by their number."""

from __future__ import annotations

import pandas as pd

from perfkit_core.analyses.tables import rounded_division
from perfkit_core.plugins.contracts import View


def per_step(table: pd.DataFrame, view: View, steps: int) -> pd.DataFrame:
    """The table with the columns ``view.per_step`` for one step: ns, bytes and FLOPs to the nearest integer, calls and
    other counts exactly."""
    result = table.copy()
    for name in view.per_step:
        if name not in result.columns:
            continue
        if view.column(name).unit in ("ns", "bytes", "flops"):
            known = result[name].notna()
            whole = result.loc[known, name].to_numpy("int64")
            result.loc[known, name] = rounded_division(whole, steps)
        else:
            result[name] = result[name].astype("Float64") / steps
    return result
