"""Assertions that hold under ``python -O`` too, and that name the first offending row."""

from __future__ import annotations

import numpy as np

from perfkit_core.algorithms.arrays import BoolArray
from perfkit_core.model.trace import Trace


def require(condition: bool, message: str) -> None:
    """Raise AssertionError with the message unless the condition holds."""
    if not condition:
        raise AssertionError(message)


def require_rows(trace: Trace, good: BoolArray, message: str) -> None:
    """Raise AssertionError with the message, the number of bad rows and the first of them, unless all are good."""
    bad = np.flatnonzero(~np.asarray(good, np.bool_))
    if len(bad):
        row = {
            key: value for key, value in trace.events.slice(int(bad[0]), 1).to_pylist()[0].items() if value is not None
        }
        raise AssertionError(f"{message}: {len(bad)} rows, the first is row {bad[0]}: {row}")
