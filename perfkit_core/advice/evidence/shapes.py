"""The recorded shapes of an operator's inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from perfkit_core.model.trace import Trace

Shapes = list[list[int]]
"""One list an input, empty where it is no tensor."""


def shapes_of(text: str) -> Shapes:
    """Return the shapes of a recorded text; an input that holds several tensors counts as none."""
    try:
        inputs = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return []
    if not isinstance(inputs, list):
        return []
    return [
        shape if isinstance(shape, list) and all(isinstance(size, int) for size in shape) else [] for shape in inputs
    ]


def per_row(trace: Trace, rows: npt.NDArray[np.int64], of: Callable[[Shapes], Any], missing: Any) -> npt.NDArray[Any]:
    """Return ``of`` the shapes of each row, computed once for each distinct text; ``missing`` where there are none."""
    shapes = trace.codes("shapes")
    codes = shapes.codes[rows]
    distinct = np.unique(codes[codes >= 0])
    table = np.full(len(shapes.values) + 1, missing)
    for code in distinct.tolist():
        table[code] = of(shapes_of(shapes.values[code]))
    return table[codes]  # a null has code -1, which indexes the last item: missing
