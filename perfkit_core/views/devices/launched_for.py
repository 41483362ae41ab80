"""For which operator was device work launched?"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.model.schema import OPERATOR_KINDS
from perfkit_core.model.trace import Trace
from perfkit_core.views.operators import overloads


def operator_rows(trace: Trace) -> IntArray:
    """Row of the innermost operator around the launch of each device event (-1: none), shape (rows,)."""
    operators = trace.host & trace.rows("kind", *OPERATOR_KINDS)
    nearest = np.append(nesting.nearest_on_path(trace.ints("parent"), operators), NO_ROW)
    return nearest[trace.ints("launched_by")]


def operators(trace: Trace, rows: IntArray, argument: str | None) -> pd.Categorical:
    """The name of that operator, null where there is none. Shape (len(rows),)."""
    names = overloads.operator_names(trace)
    found = operator_rows(trace)[rows]
    codes = np.where(found == NO_ROW, -1, names.codes[found])
    return pd.Categorical.from_codes(codes, categories=pd.Index(names.values, dtype=object))


def modules(trace: Trace, rows: IntArray, argument: str | None) -> pd.Categorical:
    """The layer of the launching call. Shape (len(rows),)."""
    launched_by, codes = trace.ints("launched_by")[rows], trace.codes("module")
    found = np.where(launched_by == NO_ROW, -1, np.append(codes.codes, -1)[launched_by])
    return pd.Categorical.from_codes(found, categories=pd.Index(codes.values, dtype=object))
