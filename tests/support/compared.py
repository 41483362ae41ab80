"""Comparisons of two traces for tests."""

from __future__ import annotations

import pandas as pd

from perfkit_core.compare.align.align import align
from perfkit_core.compare.attribute.attribute import attribute
from perfkit_core.trace.model.trace import Trace


def attributed(base: Trace, other: Trace) -> pd.DataFrame:
    """Return the tree of the difference between two runs."""
    return attribute(align(base, other))
