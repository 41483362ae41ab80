"""Columns of Arrow made of the integers and texts of a database."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.base.algorithms.groupby import distinct
from perfkit_core.readers.ascend.device_tasks import BACKEND


def nullable(values: npt.NDArray[np.integer[Any]]) -> pa.Array:
    return pa.array(values, mask=values < 0)


def digits(values: IntArray) -> pa.Array:
    return nullable(values).cast(pa.string())


def constant(value: str, count: int) -> pa.Array:
    return pa.repeat(value, count).dictionary_encode()


def encoded(values: Sequence[str | None], codes: npt.NDArray[np.integer[Any]]) -> pa.DictionaryArray:
    """Return the texts ``values[code]``. Negative codes become null."""
    number = {value: at for at, value in enumerate(dict.fromkeys(value for value in values if value is not None))}
    new_codes = np.array([*(NO_ROW if value is None else number[value] for value in values), NO_ROW], np.int32)
    return pa.DictionaryArray.from_arrays(nullable(new_codes[codes]), pa.array(list(number), pa.string()))


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


def json_objects(values: Mapping[str, pa.Array]) -> pa.Array:
    """Return JSON objects without the values that are null, null if all are."""
    parts = [
        pc.fill_null(pc.binary_join_element_wise(f', "{key}": ', column.cast(pa.string()), ""), "")
        for key, column in values.items()
    ]
    texts = pc.binary_join_element_wise(*parts, "")
    inner = pc.utf8_slice_codeunits(texts, 2)
    return pc.if_else(pc.equal(texts, ""), None, pc.binary_join_element_wise("{", inner, "}", ""))
