"""Shapes of an operator's inputs and, where they were recorded, strides (elements from one index to the next)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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


def per_row_with_strides(
    trace: Trace, rows: npt.NDArray[np.int64], of: Callable[[Shapes, Shapes | None], int]
) -> npt.NDArray[np.int64]:
    """``of`` shapes and strides (None: not recorded) of some rows, computed once for each distinct pair of texts; 0
    where no shapes were recorded."""
    shapes, strides = trace.codes("shapes"), _strides(trace, rows)
    shape = shapes.codes[rows].astype(np.int64)
    width = len(strides.dictionary) + 1
    stride = strides.indices.fill_null(width - 1).to_numpy(zero_copy_only=False).astype(np.int64)
    pairs, at = np.unique(shape * width + stride, return_inverse=True)
    found = np.zeros(len(pairs), np.int64)
    for index, pair in enumerate(pairs.tolist()):
        if pair < 0:
            continue
        text = strides.dictionary[pair % width].as_py() if pair % width < width - 1 else None
        found[index] = of(shapes_of(shapes.values[pair // width]), None if text is None else shapes_of(text))
    return found[at]


def _strides(trace: Trace, rows: npt.NDArray[np.int64]) -> pa.DictionaryArray:
    if not len(rows):
        return pa.array([], pa.string()).dictionary_encode()
    texts = pc.extract_regex(trace.pick("args", rows), r'"Input Strides" *: *(?P<strides>\[\[.*?\]\])')
    return pc.struct_field(texts, "strides").dictionary_encode()


def _shape(found: Any) -> list[int]:
    return found if isinstance(found, list) and all(isinstance(size, int) for size in found) else []
