"""Kind, phase, step and category columns of many events at once: one look-up a distinct (type, name)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfkit_core import arrays
from perfkit_core.schema import MEMORY, OTHER
from perfkit_core.sources.dialect import Label
from perfkit_core.sources.vocabulary import encoded
from perfkit_paddle import names

IntArray = npt.NDArray[np.int64]
Columns = dict[str, pa.Array]


def category_name(number: int, types: Sequence[str] = names.EVENT_TYPES) -> str:
    """Name of an event type; ``EventType17`` for numbers that no known Paddle writes."""
    return types[number] if 0 <= number < len(types) else f"EventType{number}"


def labelled(name: pa.DictionaryArray, types: IntArray) -> Columns:
    """The columns name, kind, category, phase, layer and step of events with these names and type numbers."""
    numbers, type_code = distinct(types)
    pairs, row = distinct(name.indices.to_numpy() * len(numbers) + type_code)
    spelled = name.dictionary.to_pylist()
    found = [_label(int(numbers[pair % len(numbers)]), spelled[pair // len(numbers)]) for pair in pairs]
    steps = pa.array([label.step for _, label in found], pa.int64())
    return {
        "name": name,
        "kind": spread([label.kind for _, label in found], row),
        "category": spread([category for category, _ in found], row),
        "phase": spread([label.phase for _, label in found], row),
        "layer": spread([label.layer for _, label in found], row),
        "step": steps.take(pa.array(row)),
    }


def memory_labelled(types: IntArray) -> Columns:
    """The columns name, kind and category of memory events with these type numbers."""
    numbers, row = distinct(types)
    categories = [category_name(int(number), names.MEMORY_TYPES) for number in numbers]
    return {
        "name": constant(names.MEMORY_NAME, len(types)),
        "kind": constant(MEMORY, len(types)),
        "category": spread(categories, row),
    }


def _label(number: int, name: str) -> tuple[str, Label]:
    category = category_name(number)
    return category, names.label(category, name) if names.is_known(category) else Label(OTHER)


def distinct(values: IntArray) -> tuple[IntArray, npt.NDArray[np.int32]]:
    """The distinct integers as they come, and the number of each row's; by hashing, which is faster than sorting."""
    encoded = pa.array(values).dictionary_encode()
    return encoded.dictionary.to_numpy(), encoded.indices.to_numpy()


def spread(values: Sequence[str | None], row: npt.NDArray[Any]) -> pa.DictionaryArray:
    """A text column from its values, some of them alike, and the number of the value of each row."""
    number = {value: n for n, value in enumerate(dict.fromkeys(value for value in values if value is not None))}
    codes = np.array([-1 if value is None else number[value] for value in values], np.int32)
    return encoded(arrays.spread(codes, row), pa.array(number, pa.string()))


def constant(value: str, count: int) -> pa.DictionaryArray:
    """The same text in every row."""
    return encoded(np.zeros(count, np.int32), pa.array([value], pa.string()))
