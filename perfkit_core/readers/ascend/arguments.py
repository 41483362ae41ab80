"""Texts in which Ascend's profiler writes arguments, shapes, types and stacks, and their meaning in the event table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.algorithms.arrays import Codes, IntArray, texts, to_codes
from perfkit_core.base.algorithms.groupby import distinct
from perfkit_core.readers.chrome.event_rows import as_text
from perfkit_core.trace.assembly.draft import RecordedEvents, integers, with_integers

_SHAPES: Final = re.compile(r'[\d,;\s"]*')


def text_of(args: pa.Array, key: str) -> pa.Array:
    """Return the text of an argument in JSON objects, null where it is missing."""
    return pc.struct_field(pc.extract_regex(args, rf'"{re.escape(key)}"\s*:\s*"(?P<value>[^"\\]*)"'), [0])


def number(args: pa.Array, key: str) -> IntArray:
    """Return an argument that is not negative, shape (len(args),), or -1 where it is missing or too large."""
    digits = pc.extract_regex(args, rf'"{re.escape(key)}"\s*:\s*"?(?P<value>\d{{1,18}})\b')
    values = pc.cast(pc.struct_field(digits, [0]), pa.int64()).fill_null(-1)
    return np.asarray(values.to_numpy(zero_copy_only=False), np.int64)


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
