"""JSON text of many rows at once: members are Arrow arrays of text, joined column by column.

What is escaped is escaped once for each distinct value, numbers are written from integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.algorithms.arrays import Codes, IntArray

_NS_DIGITS: Final = 3


def quoted(text: str) -> str:
    """A JSON string, quotes included. Control and non-ASCII characters as JSON allows them."""
    return msgspec.json.encode(text).decode()


def joined(parts: Sequence[Any], separator: str = "") -> pa.Array:
    """Rows of several columns in one, nulls left out. Columns are arrays or a constant text."""
    return pc.binary_join_element_wise(*parts, separator, null_handling="skip")


def numbers(values: IntArray, missing: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Decimal text, null where ``missing``."""
    return pa.array(values, mask=missing).cast(pa.string())


def microseconds(ns: IntArray) -> pa.Array:
    """Non-negative ns as µs with three decimals: exact, as no float is."""
    fraction = pc.utf8_lpad(numbers(ns % 1000), _NS_DIGITS, "0")
    return joined([numbers(ns // 1000), fraction], ".")


def number_member(key: str, values: IntArray, missing: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """``"key":123``, null where ``missing``."""
    text = numbers(values, missing)
    return pc.binary_join_element_wise(f"{quoted(key)}:", text, "", null_handling="emit_null")


class TextMember:
    """``"key":"value"`` of a text column: written once for each distinct value."""

    def __init__(self, key: str, column: Codes) -> None:
        self._codes = column.codes
        self._members = pa.array([f"{quoted(key)}:{quoted(value)}" for value in column.values], pa.string())

    def take(self, rows: IntArray) -> pa.Array:
        """The members of these rows, null where the column is null."""
        codes = self._codes[rows]
        return self._members.take(pa.array(codes, mask=codes < 0))


def objects(members: Sequence[pa.Array], arguments: Sequence[pa.Array] = ()) -> pa.Array:
    """``{members}`` a row; ``arguments`` are the members of an object inside, named ``args``."""
    if not arguments:
        return joined(["{", joined(members, ","), "}"])
    return joined(["{", joined(members, ","), ',"args":{', joined(arguments, ","), "}}"])


def as_bytes(lines: pa.Array, separator: str) -> bytes:
    """All rows in one text."""
    if not len(lines):
        return b""
    whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    text: bytes = pc.binary_join(whole, separator).cast(pa.binary())[0].as_py()
    return text
