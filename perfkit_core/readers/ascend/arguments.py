"""Texts in which Ascend's profiler writes arguments, shapes, types and stacks, and their meaning in the event table."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfkit_core.base.algorithms.arrays import NO_ROW, Codes, IntArray, filled, texts, to_codes, valid
from perfkit_core.base.algorithms.groupby import distinct
from perfkit_core.base.runtime.compiled import Out, compiled, inlined
from perfkit_core.base.runtime.primitives import byte
from perfkit_core.readers.chrome.event_rows import as_text
from perfkit_core.trace.assembly.draft import RecordedEvents, integers, with_integers

ByteText = npt.NDArray[np.uint8]
_SHAPES: Final = re.compile(r'[\d,;\s"]*')


def number(args: pa.Array, key: str) -> IntArray:
    """Return an argument in JSON objects, shape (len(args),), or -1 where it is missing, negative or too large."""
    values: IntArray = extracted(args, (key,))[0][0]
    return values


def extracted(args: pa.Array, numbers: Sequence[str], texts: Sequence[str] = ()) -> tuple[IntArray, list[pa.Array]]:
    """Return several arguments as :func:`number` does, shape (len(numbers), len(args)), and the texts of others, null
    where they are missing. Few texts should differ."""
    keys = [*numbers, *texts]
    values, places = (filled(len(keys) * len(args), NO_ROW) for _ in range(2))
    names, (text, begins, ends) = np.frombuffer("".join(keys).encode(), np.uint8), _cells(args)
    _find(text, begins, ends, names, np.cumsum([0, *map(len, keys)]), len(numbers), values, places)
    values, places = values.reshape(len(keys), -1), places.reshape(len(keys), -1)
    columns = []
    for hashes, place in zip(values[len(numbers) :], places[len(numbers) :], strict=True):
        code, first = distinct([hashes], len(args))
        found = np.where(hashes >= 0, place, ends)[first]  # what is missing is read as empty
        cells = map(ctypes.string_at, (text + found).tolist(), (ends[first] - found).tolist())
        values_ = pa.array([cell.partition(b'"')[0].decode("utf-8", "replace") for cell in cells], pa.string())
        columns.append(values_.take(pa.array(code, mask=hashes < 0)))
    return values[: len(numbers)], columns


def _cells(args: pa.Array) -> tuple[int, IntArray, IntArray]:
    """Return the address of the text, and the begins and ends of the cells. Nulls are empty."""
    _, offsets, text = args.buffers()
    ends = np.frombuffer(offsets or bytes(4), np.int32)[args.offset : args.offset + len(args) + 1].astype(np.int64)
    return text.address if text is not None else 0, ends[:-1], np.where(valid(args), ends[1:], ends[:-1])


_QUOTE, _BACKSLASH, _COLON, _SPACE, _ZERO, _NINE, _MOST_DIGITS = 0x22, 0x5C, 0x3A, 0x20, 0x30, 0x39, 18


@compiled
def _find(
    text: int, begins: IntArray, ends: IntArray, names: ByteText, name_ends: IntArray, first_text: int,
    values: Out[IntArray], places: Out[IntArray],
) -> None:  # fmt: skip
    """Set the items ``key * rows + row`` for the first value of each key in ``text[begins[row]:ends[row]]``. The values
    of keys from ``first_text`` on are texts. Each quote may begin a key, for it is not known which one does."""
    rows = len(begins)
    for row in range(rows):
        at, end = begins[row], ends[row]
        while at < end:
            at += 1
            if byte(text, at - 1) != _QUOTE:
                continue
            stop = at
            while stop < end and byte(text, stop) != _QUOTE:
                stop += 1
            for key in range(len(name_ends) - 1):
                length, cell = name_ends[key + 1] - name_ends[key], key * rows + row
                if stop - at != length or stop == end or values[cell] >= 0:
                    continue
                same = np.int64(0)
                while same < length and byte(text, at + same) == names[name_ends[key] + same]:
                    same += 1
                begin = _value(text, stop + 1, end) if same == length else end
                if begin < end:
                    places[cell] = begin + 1
                    values[cell] = _number(text, begin, end) if key < first_text else _hash(text, begin, end)
            at = stop


@inlined
def _value(text, at, end):  # type: ignore[no-untyped-def]
    """Return the begin of the value after a colon, or ``end``."""
    colons = 0
    while at < end and (byte(text, at) == _SPACE or (byte(text, at) == _COLON and colons == 0)):
        colons += byte(text, at) == _COLON
        at += 1
    return at if colons == 1 else end


@inlined
def _number(text, at, end):  # type: ignore[no-untyped-def]
    at += byte(text, at) == _QUOTE
    first, number = at, np.int64(0)
    while at < end and _ZERO <= byte(text, at) <= _NINE and at - first <= _MOST_DIGITS:
        number = number * 10 + np.int64(byte(text, at) - _ZERO)
        at += 1
    return number if 0 < at - first <= _MOST_DIGITS else np.int64(-1)


@inlined
def _hash(text, at, end):  # type: ignore[no-untyped-def]
    if byte(text, at) != _QUOTE:
        return np.int64(-1)
    at += 1
    state = np.uint64(0xCBF29CE484222325)
    while at < end and byte(text, at) != _QUOTE and byte(text, at) != _BACKSLASH:
        state = (state ^ np.uint64(byte(text, at))) * np.uint64(0x100000001B3)
        at += 1
    return np.int64(state >> np.uint64(1)) if at < end and byte(text, at) == _QUOTE else np.int64(-1)


def combined(first: Codes, second: Codes) -> tuple[list[tuple[str, str]], IntArray]:
    """Return the different pairs of the texts of two columns, "" for null, and the index of each row's pair."""
    width = len(second.values) + 1
    pairs = (first.codes.astype(np.int64) + 1) * width + second.codes + 1
    of_row, first_rows = distinct([pairs], len(pairs))
    texts_ = ["", *first.values], ["", *second.values]
    return [(texts_[0][pair // width], texts_[1][pair % width]) for pair in pairs[first_rows].tolist()], of_row


def shapes(value: str) -> str | None:
    """Return shapes as in the event table: ``[[32,64],[64]]`` for ``"32,64;64"``, with or without quotes."""
    return as_text("shapes", value.replace('"', ""))


def types(value: str) -> str | None:
    """Return types as in the event table: ``["float","None"]`` for ``float;None``."""
    return as_text("dtypes", value)


def are_shapes(values: Sequence[str]) -> bool:
    """Return whether some texts are shapes, and none is anything else."""
    return any(values) and all(map(_SHAPES.fullmatch, values))


def understood(recorded: RecordedEvents) -> RecordedEvents:
    """Return the events with shapes, types, stacks and sequence numbers as in the event table."""
    columns = recorded.columns
    for name, meaning in (("shapes", shapes), ("dtypes", types), ("stack", _frames)):
        at = columns.schema.get_field_index(name)
        if at >= 0 and columns[name].null_count < columns.num_rows:
            codes, values = to_codes(columns[name].chunks, columns.num_rows)
            new = [meaning(value) or "" for value in values]
            number_of = {value: place for place, value in enumerate(dict.fromkeys(filter(None, new)))}
            spread = np.array([*(number_of.get(value, -1) for value in new), -1], np.int32)[codes]
            columns = columns.set_column(at, name, texts(spread, list(number_of)))
    if "sequence" in columns.column_names:  # -1 stands for none
        columns = with_integers(columns, "sequence", integers(columns, "sequence"))
    return replace(recorded, columns=columns)


def _frames(value: str) -> str:
    """Return a stack whose frames are separated by ``;`` alone."""
    return ";".join(frame.strip() for frame in value.split(";"))
