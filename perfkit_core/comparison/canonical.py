"""The operator time of one run by canonical operator, without counting anything twice.

Counted are the operators of :mod:`~perfkit_core.comparison.alignment.units`; what they call belongs to them. What
remains of the operators at the top has no canonical name and stays under its native one: the rows sum to the operator
time.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core.comparison.alignment.items import unit_times
from perfkit_core.comparison.alignment.units import OPTIMIZER_UPDATE, units
from perfkit_core.trace import BoolArray, Trace

__all__ = ["OPTIMIZER_UPDATE", "operator_time"]


def operator_time(trace: Trace, chosen: BoolArray) -> pd.DataFrame:
    """Columns name (canonical, or native where unnamed), named (bool), calls, cpu_ns, device_ns: sums of ``chosen``."""
    found = units(trace)
    rows = np.flatnonzero(found.own & chosen)
    names = np.array([*found.name.values, ""], object)[found.name.codes[rows]]
    named = (trace.codes("op_name").codes[rows] >= 0) | (names == OPTIMIZER_UPDATE)
    cpu, device = unit_times(trace)
    table = pd.DataFrame({"name": names, "named": named, "calls": 1, "cpu_ns": cpu[rows], "device_ns": device[rows]})
    sums: pd.DataFrame = table.groupby(["name", "named"], sort=False)[["calls", "cpu_ns", "device_ns"]].sum()
    return sums.reset_index()
