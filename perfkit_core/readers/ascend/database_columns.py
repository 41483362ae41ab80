"""Columns of Arrow made of the integers and texts of a database."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray, valid
from perfkit_core.base.algorithms.groupby import distinct
from perfkit_core.readers.ascend.device_tasks import BACKEND


def nullable(values: npt.NDArray[np.integer[Any]]) -> pa.Array:
    bits = np.packbits(values >= 0, bitorder="little")
    buffers = [pa.py_buffer(bits), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)


def encoded(values: Sequence[str | None], codes: npt.NDArray[np.integer[Any]]) -> pa.DictionaryArray:
    """Return the texts ``values[code]``. Negative codes become null."""
    number = {value: at for at, value in enumerate(dict.fromkeys(value for value in values if value is not None))}
    new_codes = np.array([*(NO_ROW if value is None else number[value] for value in values), NO_ROW], np.int32)
    return pa.DictionaryArray.from_arrays(nullable(new_codes.take(codes)), pa.array(list(number), pa.string()))


def device_names(numbers: IntArray) -> pa.DictionaryArray:
    code, first = distinct([numbers], len(numbers))
    return encoded([f"{BACKEND}:{max(number, 0)}" for number in numbers[first].tolist()], code)


def mapped(column: pa.DictionaryArray, meaning: Callable[[str], str | None]) -> pa.DictionaryArray:
    return encoded(
        [meaning(value) for value in column.dictionary.to_pylist()], column.indices.fill_null(NO_ROW).to_numpy()
    )


def quoted(texts: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return JSON strings."""
    return mapped(texts, lambda text: '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"')


def json_objects(values: Mapping[str, IntArray | pa.DictionaryArray]) -> pa.Array:
    """Return JSON objects of numbers and of JSON texts, without those that are negative or null; null if all are."""
    columns = {key: nullable(column) if isinstance(column, np.ndarray) else column for key, column in values.items()}
    some = np.logical_or.reduce([valid(getattr(column, "indices", column)) for column in columns.values()])
    parts = []
    for key, column in columns.items():
        if not some.all():
            column = column.filter(pa.array(some))
        if isinstance(column, pa.DictionaryArray):
            parts.append(mapped(column, f'"{key}": {{}}'.format).cast(pa.string()))
        else:
            parts.append(pc.binary_join_element_wise(f'"{key}": ', column.cast(pa.string()), ""))
    members = pc.binary_join_element_wise(*parts, ", ", null_handling="skip")
    objects = pc.binary_join_element_wise("{", members, "}", "")
    return objects if some.all() else objects.take(pa.array(np.cumsum(some) - 1, mask=~some))
