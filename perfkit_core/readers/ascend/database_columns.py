"""Columns of Arrow made of the integers and texts of a database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.readers.ascend.device_tasks import BACKEND
from perfkit_core.trace.assembly.draft import RECORDED_TYPES


def nullable(values: npt.NDArray[np.integer[Any]]) -> pa.Array:
    return pa.array(values, mask=values < 0)


def digits(values: IntArray) -> pa.Array:
    return nullable(values).cast(pa.string())


def constant(value: str, count: int) -> pa.Array:
    return pa.repeat(value, count).dictionary_encode()


def device_names(numbers: IntArray) -> pa.Array:
    found, code = np.unique(np.maximum(numbers, 0), return_inverse=True)
    return pa.DictionaryArray.from_arrays(
        pa.array(code, pa.int32()), pa.array([f"{BACKEND}:{number}" for number in found])
    )


def taken(values: list[Any], codes: IntArray, of_type: pa.DataType = RECORDED_TYPES["name"]) -> pa.Array:
    kind = pa.string() if pa.types.is_dictionary(of_type) else of_type
    array = pa.array(values, kind).take(pa.array(codes, mask=codes < 0))
    return array.dictionary_encode() if pa.types.is_dictionary(of_type) else array


def mapped(column: pa.DictionaryArray, meaning: Callable[[str], str | None]) -> pa.Array:
    return pa.array([meaning(value) for value in column.dictionary.to_pylist()], pa.string()).take(column.indices)


def named(numbers: IntArray, names: Mapping[int, str]) -> pa.Array:
    found, code = np.unique(numbers, return_inverse=True)
    return pa.array([names.get(number) for number in found.tolist()], pa.string()).take(pa.array(code))


def quoted(texts: pa.Array) -> pa.Array:
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    return pc.binary_join_element_wise('"', escaped, '"', "")


def json_objects(values: Mapping[str, pa.Array], count: int) -> pa.Array:
    """Return JSON objects without the values that are null, null if all are."""
    texts = pa.array([""] * count, pa.string())
    for key, column in values.items():
        part = pc.binary_join_element_wise(f', "{key}": ', column, "")
        texts = pc.binary_join_element_wise(texts, pc.fill_null(part, ""), "")
    inner = pc.utf8_slice_codeunits(texts, 2)
    return pc.if_else(pc.equal(texts, ""), None, pc.binary_join_element_wise("{", inner, "}", ""))
