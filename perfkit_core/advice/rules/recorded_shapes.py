"""Shapes of an operator's inputs, from the recorded text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from perfkit_core.trace import Trace

Shapes = list[list[int]]
"""One list an input, empty where it is no tensor."""


def shapes_of(text: str) -> Shapes:
    """The shapes of one text; an input that holds several tensors counts as none."""
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return []
    return [_shape(one) for one in found] if isinstance(found, list) else []


def per_row(trace: Trace, rows: npt.NDArray[np.int64], of: Callable[[Shapes], Any], missing: Any) -> npt.NDArray[Any]:
    """``of`` the shapes of some rows, computed once for each distinct text; ``missing`` where none were recorded."""
    shapes = trace.codes("shapes")
    codes = shapes.codes[rows]
    distinct = np.unique(codes[codes >= 0])
    table = np.full(len(shapes.values) + 1, missing)
    for code in distinct.tolist():
        table[code] = of(shapes_of(shapes.values[code]))
    return table[codes]


def _shape(found: Any) -> list[int]:
    return found if isinstance(found, list) and all(isinstance(size, int) for size in found) else []
